// NVFP4: 4-bit floats, doubled, under 8-bit floats of 16.
#define LEN 64
#define WORDS 9
#define REST 0
#define UNIT 16
#define ACT 32
#define HAS_MIN 0

#define TABLE0 0x03020100u
#define TABLE1 0x0c080604u
#define TABLE2 0xfdfeff00u
#define TABLE3 0xf4f8fafcu
#include "unpack_table.glsl"

// Half of a unit's scale.
float half_scale(uint bits) {
    uint exponent = bits >> 3 & 15u, mantissa = bits & 7u;
    if (bits == 127) return 0.0;
    precise float d = exponent == 0 ? float(mantissa) * F((127 - 10) << 23)
                                    : float(8 + mantissa) * F((127 + exponent - 11) << 23);
    return d;
}

void begin() {}

float value(uint unit, int isum, int msum) {
    precise float t = half_scale(byte_of(word_at(0), unit)) * float(isum);
    return t;
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uint a = word_at(1 + 2 * i), b = word_at(2 + 2 * i);
    q = uvec4(numbers(a), numbers(b), numbers(a >> 4), numbers(b >> 4));
}
