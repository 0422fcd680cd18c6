// IQ2_S: Groups of eight from a book of 1024, signs free; 4-bit scales of 16.
#define LEN 256
#define WORDS 20
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
    uint at = i % 2 * 2, numbers = word_at(i / 2), signs = word_at(8 + i / 2) >> 8 * at;
    uint high = byte_of(word_at(16 + i / 8), i / 2 % 4) >> 2 * at;
    uvec2 a = entry(byte_of(numbers, at) | (high & 3u) << 8);
    uvec2 b = entry(byte_of(numbers, at + 1) | (high >> 2 & 3u) << 8);
    q = uvec4(with_signs(a.x, signs), with_signs(a.y, signs >> 4), with_signs(b.x, signs >> 8),
        with_signs(b.y, signs >> 12));
    factor = int(2 * (word_at(18 + i / 8) >> 4 * (i % 8) & 15u) + 1);
}
