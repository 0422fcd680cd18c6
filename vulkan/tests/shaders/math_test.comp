#version 460
// A function of math.glsl for each element, to compare with the host's: bits in, bits out.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Words x;
    Words y;
    Words out_;
    uint n;
} p;

layout(constant_id = 0) const uint FUNCTION = 0;

uint f(uint a, uint b) {
    float x = F(a), y = F(b), s, c;
    switch (FUNCTION) {
        case 0u: return floatBitsToUint(div(x, y));
        case 1u: return floatBitsToUint(recip(x));
        case 2u: return floatBitsToUint(sqrt_exact(x));
        case 3u: return floatBitsToUint(rsqrt_exact(x));
        case 4u: return floatBitsToUint(exp_(x));
        case 5u: return floatBitsToUint(tanh_(x));
        case 6u: return floatBitsToUint(erf_(x));
        case 7u: return floatBitsToUint(f16_to_f32(a & 0xffffu));
        case 8u: return f32_to_f16(x);
        case 9u: sin_cos(x, s, c); return floatBitsToUint(s);
        case 10u: sin_cos(x, s, c); return floatBitsToUint(c);
        default: return floatBitsToUint(round_even(x));
    }
}

void main() {
    uint stride = gl_NumWorkGroups.x * 64;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += stride) p.out_.at[i] = f(p.x.at[i], p.y.at[i]);
}
