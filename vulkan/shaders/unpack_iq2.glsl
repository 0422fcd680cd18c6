// Entries of a book of groups of eight.
uvec2 entry(uint number) { return uvec2(p.grid.at[2 * number], p.grid.at[2 * number + 1]); }
