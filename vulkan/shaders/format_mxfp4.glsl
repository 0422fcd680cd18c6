// MXFP4: 4-bit floats, doubled, under a power of two; one below 2^-29 counts as zero.
#define LEN 32
#define WORDS 4
#define REST 1
#define UNIT 32
#define ACT 32
#define HAS_MIN 0
#include "unpack_scaled.glsl"

#define TABLE0 0x03020100u
#define TABLE1 0x0c080604u
#define TABLE2 0xfdfeff00u
#define TABLE3 0xf4f8fafcu
#include "unpack_table.glsl"

void begin() {
    uint e = rest_bits();
    scale = e < 99 ? 0.0 : F((e - 1) << 23);
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 codes = uvec4(word_at(0), word_at(1), word_at(2), word_at(3)) >> 4 * i;
    q = uvec4(numbers(codes.x), numbers(codes.y), numbers(codes.z), numbers(codes.w));
}
