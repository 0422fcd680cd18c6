// Q5_1: 5 bits, a scale and a minimum: both, the fifth bits, then words of nibbles.
#define LEN 32
#define WORDS 6
#define REST 0
#define UNIT 32
#define ACT 32
#define HAS_MIN 1
#include "unpack_min.glsl"
#include "unpack_fifth.glsl"

void begin() {
    uint both = word_at(0);
    scale = f16_to_f32(both & 0xffffu);
    least = f16_to_f32(both >> 16);
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(word_at(2), word_at(3), word_at(4), word_at(5)) >> 4 * i & 0x0f0f0f0fu;
    q |= fifth(word_at(1), i);
}
