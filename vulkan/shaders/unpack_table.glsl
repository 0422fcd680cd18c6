// Codes of four bits that stand for bytes of a table, four in each of TABLE0 to TABLE3.

// What a code stands for, as a byte.
uint number(uint code) {
    uint four = code < 8 ? (code < 4 ? TABLE0 : TABLE1) : (code < 12 ? TABLE2 : TABLE3);
    return four >> 8 * (code & 3u) & 255u;
}

// The same for four nibbles, the low ones of bytes.
uint numbers(uint codes) {
    return number(codes & 15u) | number(codes >> 8 & 15u) << 8 | number(codes >> 16 & 15u) << 16
        | number(codes >> 24 & 15u) << 24;
}
