// The fifth bits of sixteen weights, from a word that has one for each of 32.
uvec4 fifth(uint high, uint i) {
    high >>= 16 * i;
    return uvec4(spread(high), spread(high >> 4), spread(high >> 8), spread(high >> 12)) << 4;
}
