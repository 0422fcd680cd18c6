// Q4_K: 4 bits in planes of 32; 6-bit scales and minima of 32.
#define LEN 256
#define WORDS 36
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 1

float scale, least;

float value(uint unit, int isum, int msum) {
    precise float m = least * float(msum);
    precise float t = fma(scale, float(isum), m);
    return t;
}

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

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = 4 + i / 4 * 8 + i % 2 * 4;
    q = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 4 / 2 * 4 & 0x0f0f0f0fu;
    scale_and_min(i / 2, factor, low);
}
