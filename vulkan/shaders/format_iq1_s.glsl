// IQ1_S: Ternary groups of eight from a book of 2048; 3-bit scales and shifts of 32.
#define LEN 256
#define WORDS 12
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"
#include "unpack_iq1.glsl"

void begin() {
    precise float d = f16_to_f32(rest_bits()) * 0.125;
    scale = d;
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint bits = word_at(8 + i / 4) >> i / 2 % 2 * 16;
    uint numbers = word_at(i / 2), at = i % 2 * 2;
    bool down = (bits & 0x8000u) != 0;
    uvec2 a = shifted(byte_of(numbers, at) | (bits >> 3 * at & 7u) << 8, down);
    uvec2 b = shifted(byte_of(numbers, at + 1) | (bits >> 3 * (at + 1) & 7u) << 8, down);
    q = uvec4(a, b);
    factor = int(2 * (bits >> 12 & 7u) + 1);
}
