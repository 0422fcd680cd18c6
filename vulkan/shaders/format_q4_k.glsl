// Q4_K: 4 bits in planes of 32; 6-bit scales and minima of 32.
#define LEN 256
#define WORDS 36
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 1
#include "unpack_min.glsl"
#include "unpack_k.glsl"

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint at = 4 + i / 4 * 8 + i % 2 * 4;
    q = uvec4(word_at(at), word_at(at + 1), word_at(at + 2), word_at(at + 3)) >> i % 4 / 2 * 4 & 0x0f0f0f0fu;
    scale_and_min(i / 2, factor, low);
}
