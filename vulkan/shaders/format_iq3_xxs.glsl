// IQ3_XXS: Groups of four from a book of 256, an even number of minus signs in eight; 4-bit scales of 32.
#define LEN 256
#define WORDS 24
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() {
    precise float d = f16_to_f32(rest_bits()) * 0.25;
    scale = d;
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint numbers = word_at(i), bits = word_at(16 + i / 2), at = i % 2 * 2;
    uint s = even_signs(bits >> 7 * at), t = even_signs(bits >> 7 * (at + 1));
    q = uvec4(with_signs(p.grid.at[byte_of(numbers, 0)], s), with_signs(p.grid.at[byte_of(numbers, 1)], s >> 4),
        with_signs(p.grid.at[byte_of(numbers, 2)], t), with_signs(p.grid.at[byte_of(numbers, 3)], t >> 4));
    factor = int(2 * (bits >> 28) + 1);
}
