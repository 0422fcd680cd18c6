// Q5_0: 5 bits less 16, a scale: the fifth bits, then words of nibbles.
#define LEN 32
#define WORDS 5
#define REST 2
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"
#include "unpack_fifth.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 bits = uvec4(word_at(1), word_at(2), word_at(3), word_at(4)) >> 4 * i & 0x0f0f0f0fu;
    bits |= fifth(word_at(0), i);
    q = uvec4(minus(bits.x, 16), minus(bits.y, 16), minus(bits.z, 16), minus(bits.w, 16));
}
