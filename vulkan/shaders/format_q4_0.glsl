// Q4_0: 4 bits less 8, a scale: words of nibbles.
#define LEN 32
#define WORDS 4
#define REST 2
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 bits = uvec4(word_at(0), word_at(1), word_at(2), word_at(3)) >> 4 * i & 0x0f0f0f0fu;
    q = uvec4(minus(bits.x, 8), minus(bits.y, 8), minus(bits.z, 8), minus(bits.w, 8));
}
