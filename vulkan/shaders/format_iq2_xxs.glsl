// IQ2_XXS: Groups of eight from a book of 256, an even number of minus signs; 4-bit scales of 32.
#define LEN 256
#define WORDS 16
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"
#include "unpack_iq2.glsl"

void begin() {
    precise float d = f16_to_f32(rest_bits()) * 0.125;
    scale = d;
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint numbers = word_at(i / 2 * 2), bits = word_at(i / 2 * 2 + 1), at = i % 2 * 2;
    uint s = even_signs(bits >> 7 * at), t = even_signs(bits >> 7 * (at + 1));
    uvec2 a = entry(byte_of(numbers, at)), b = entry(byte_of(numbers, at + 1));
    q = uvec4(with_signs(a.x, s), with_signs(a.y, s >> 4), with_signs(b.x, t), with_signs(b.y, t >> 4));
    factor = int(2 * (bits >> 28) + 1);
}
