// Q4_1: 4 bits, a scale and a minimum: both, then words of nibbles.
#define LEN 32
#define WORDS 5
#define REST 0
#define UNIT 32
#define ACT 32
#define HAS_MIN 1
#include "unpack_min.glsl"

void begin() {
    uint both = word_at(0);
    scale = f16_to_f32(both & 0xffffu);
    least = f16_to_f32(both >> 16);
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(word_at(1), word_at(2), word_at(3), word_at(4)) >> 4 * i & 0x0f0f0f0fu;
}
