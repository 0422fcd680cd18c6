// Q8_K: 8 bits, a single-precision scale, and sums that nobody reads. A scale below 2^-29 counts as zero.
#define LEN 256
#define WORDS 73
#define REST 0
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() {
    float d = F(word_at(0));
    scale = magnitude(d) < F(0x31000000u) ? 0.0 : d;
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    q = uvec4(word_at(4 * i + 1), word_at(4 * i + 2), word_at(4 * i + 3), word_at(4 * i + 4));
}
