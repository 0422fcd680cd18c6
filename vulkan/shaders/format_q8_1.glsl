// Q8_1: 8 bits, a scale and a sum that nobody reads.
#define LEN 32
#define WORDS 9
#define REST 0
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(word_at(0) & 0xffffu); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(word_at(4 * i + 1), word_at(4 * i + 2), word_at(4 * i + 3), word_at(4 * i + 4));
}
