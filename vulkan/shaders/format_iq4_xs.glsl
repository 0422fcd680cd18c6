// IQ4_XS: 4 bits through a table; signed 6-bit scales of 32.
#define LEN 256
#define WORDS 34
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

#define TABLE0 0xbfad9881u
#define TABLE1 0xf6eaddcfu
#define TABLE2 0x26190d01u
#define TABLE3 0x71594535u
#include "unpack_table.glsl"

void begin() { scale = f16_to_f32(word_at(0) & 0xffffu); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint s = i / 2, at = 2 + 4 * s;
    uvec4 codes = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> 4 * (i % 2);
    q = uvec4(numbers(codes.x), numbers(codes.y), numbers(codes.z), numbers(codes.w));
    factor = int((word_at(1) >> 4 * s & 15u) | (word_at(0) >> 16 + 2 * s & 3u) << 4) - 32;
}
