// Q1_0: Signs and a scale.
#define LEN 128
#define WORDS 4
#define REST 2
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

// 1 for a set bit, else -1.
uint signs(uint bits) { return ~(spread(bits) * 254u); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint bits = word_at(i / 2) >> 16 * (i % 2);
    q = uvec4(signs(bits), signs(bits >> 4), signs(bits >> 8), signs(bits >> 12));
}
