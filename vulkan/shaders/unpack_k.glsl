// The header that Q4_K and Q5_K share.

// The 6-bit scale and minimum of 32 weights from the 12 bytes in words 1 to 3.
void scale_and_min(uint j, out int factor, out int low) {
    uint k = j % 4;
    uint a = byte_of(word_at(1), k), b = byte_of(word_at(2), k), c = byte_of(word_at(3), k);
    factor = int(j < 4 ? a & 63u : (c & 15u) | a >> 6 << 4);
    low = int(j < 4 ? b & 63u : c >> 4 | b >> 6 << 4);
}

void begin() {
    uint both = word_at(0);
    scale = f16_to_f32(both & 0xffffu);
    least = negate(f16_to_f32(both >> 16));
}
