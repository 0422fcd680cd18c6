// Q3_K: 3 bits less 4, the third in planes of 32; signed 6-bit scales of 16.
#define LEN 256
#define WORDS 27
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = 8 + i / 8 * 8 + i % 2 * 4, high = i % 2 * 4;
    uvec4 bits = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 8 / 2 * 2 & 0x03030303u;
    uvec4 third = uvec4(word_at(high), word_at(high + 1), word_at(high + 2), word_at(high + 3)) >> i / 2 & 0x01010101u;
    bits |= third << 2;
    q = uvec4(minus(bits.x, 4), minus(bits.y, 4), minus(bits.z, 4), minus(bits.w, 4));
    uint nibble = byte_of(word_at(24 + i % 8 / 4), i % 4) >> i / 8 * 4 & 15u;
    uint upper = byte_of(word_at(26), i % 4) >> i / 4 * 2 & 3u;
    factor = int(nibble | upper << 4) - 32;
}
