// IQ1_M: As IQ1_S, with scales of 16 and shifts of 8; the scale of all lies in what the others leave.
#define LEN 256
#define WORDS 14
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"
#include "unpack_iq1.glsl"

void begin() {
    uint a = word_at(12), b = word_at(13);
    uint bits = (a >> 12 & 15u) | (a >> 28) << 4 | (b >> 12 & 15u) << 8 | (b >> 28) << 12;
    precise float d = f16_to_f32(bits) * 0.125;
    scale = d;
}

uvec2 group(uint g) {
    uint high = byte_of(word_at(8 + g / 8), g / 2 % 4) >> 4 * (g % 2);
    return shifted(byte_of(word_at(g / 4), g % 4) | (high & 7u) << 8, (high & 8u) != 0);
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(group(2 * i), group(2 * i + 1));
    uint bits = word_at(12 + i / 8) >> i / 4 % 2 * 16;
    factor = int(2 * (bits >> 3 * (i % 4) & 7u) + 1);
}
