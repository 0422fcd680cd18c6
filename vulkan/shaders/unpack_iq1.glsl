// Entries of the ternary book.

// An entry in eighths, 8 above them, less 8 and shifted by one.
uvec2 shifted(uint number, bool down) {
    uvec2 e = uvec2(p.grid.at[2 * number], p.grid.at[2 * number + 1]);
    uint k = down ? 9 : 7;
    return uvec2(minus(e.x, k), minus(e.y, k));
}
