// IQ3_S: Groups of four from a book of 512, signs free; 4-bit scales of 32.
#define LEN 256
#define WORDS 27
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint numbers = word_at(i), ninth = word_at(16 + i / 8) >> 4 * (i % 8), signs = word_at(18 + i / 2) >> 16 * (i % 2);
    q = uvec4(with_signs(p.grid.at[byte_of(numbers, 0) | (ninth & 1u) << 8], signs),
        with_signs(p.grid.at[byte_of(numbers, 1) | (ninth >> 1 & 1u) << 8], signs >> 4),
        with_signs(p.grid.at[byte_of(numbers, 2) | (ninth >> 2 & 1u) << 8], signs >> 8),
        with_signs(p.grid.at[byte_of(numbers, 3) | (ninth >> 3 & 1u) << 8], signs >> 12));
    factor = int(2 * (word_at(26) >> 4 * (i / 2) & 15u) + 1);
}
