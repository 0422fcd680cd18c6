// Q8_0: 8 bits, a scale.
#define LEN 32
#define WORDS 8
#define REST 2
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(word_at(4 * i), word_at(4 * i + 1), word_at(4 * i + 2), word_at(4 * i + 3));
}
