// IQ4_NL: 4 bits through a table, a scale: words of nibbles.
#define LEN 32
#define WORDS 4
#define REST 2
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

#define TABLE0 0xbfad9881u
#define TABLE1 0xf6eaddcfu
#define TABLE2 0x26190d01u
#define TABLE3 0x71594535u
#include "unpack_table.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 codes = uvec4(word_at(0), word_at(1), word_at(2), word_at(3)) >> 4 * i;
    q = uvec4(numbers(codes.x), numbers(codes.y), numbers(codes.z), numbers(codes.w));
}
