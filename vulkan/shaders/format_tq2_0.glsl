// TQ2_0: Ternary, 2 bits in planes of 32, less 1.
#define LEN 256
#define WORDS 16
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = i / 8 * 8 + i % 2 * 4;
    uvec4 bits = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 8 / 2 * 2 & 0x03030303u;
    q = uvec4(minus(bits.x, 1), minus(bits.y, 1), minus(bits.z, 1), minus(bits.w, 1));
}
