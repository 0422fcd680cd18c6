// Q6_K: 6 bits less 32: four in planes of 64, two in planes of 32; signed 8-bit scales of 16.
#define LEN 256
#define WORDS 52
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = i / 8 * 16 + i % 4 * 4, high = 32 + i / 8 * 8 + i % 2 * 4;
    uvec4 bits = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 8 / 4 * 4 & 0x0f0f0f0fu;
    uvec4 upper =
        uvec4(word_at(high), word_at(high + 1), word_at(high + 2), word_at(high + 3)) >> i % 8 / 2 * 2 & 0x03030303u;
    bits |= upper << 4;
    q = uvec4(minus(bits.x, 32), minus(bits.y, 32), minus(bits.z, 32), minus(bits.w, 32));
    factor = bitfieldExtract(int(word_at(48 + i / 4)), int(8 * (i % 4)), 8);
}
