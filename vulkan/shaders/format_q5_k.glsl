// Q5_K: 5 bits, the fifth in planes of 32; 6-bit scales and minima of 32.
#define LEN 256
#define WORDS 44
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 1
#include "unpack_min.glsl"
#include "unpack_k.glsl"

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = 12 + i / 4 * 8 + i % 2 * 4, high = 4 + i % 2 * 4;
    q = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 4 / 2 * 4 & 0x0f0f0f0fu;
    uvec4 fifth = uvec4(word_at(high), word_at(high + 1), word_at(high + 2), word_at(high + 3)) >> i / 2 & 0x01010101u;
    q |= fifth << 4;
    scale_and_min(i / 2, factor, low);
}
