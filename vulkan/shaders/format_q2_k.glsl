// Q2_K: 2 bits in planes of 32; 4-bit scales and minima of 16.
#define LEN 256
#define WORDS 21
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 1
#include "unpack_min.glsl"

void begin() {
    uint both = word_at(20);
    scale = f16_to_f32(both & 0xffffu);
    least = negate(f16_to_f32(both >> 16));
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = 4 + i / 8 * 8 + i % 2 * 4;
    q = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 8 / 2 * 2 & 0x03030303u;
    uint both = byte_of(word_at(i / 4), i % 4);
    factor = int(both & 15u);
    low = int(both >> 4);
}
