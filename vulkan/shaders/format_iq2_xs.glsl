// IQ2_XS: Groups of eight from a book of 512, an even number of minus signs; 4-bit scales of 16.
#define LEN 256
#define WORDS 18
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
    uint both = word_at(i);
    uint s = even_signs(both >> 9), t = even_signs(both >> 25);
    uvec2 a = entry(both & 511u), b = entry(both >> 16 & 511u);
    q = uvec4(with_signs(a.x, s), with_signs(a.y, s >> 4), with_signs(b.x, t), with_signs(b.y, t >> 4));
    factor = int(2 * (word_at(16 + i / 8) >> 4 * (i % 8) & 15u) + 1);
}
