#version 460
// Turns each head's pairs in place by the token's angles: a lane for each pair of a row.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Floats cos_;
    Floats sin_;
    uint width;
    uint head_dim;
    uint half_;
    uint rows;
    uint interleaved;
} p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    uint head = i / p.half_, pair = i % p.half_;
    if (head >= p.width / p.head_dim) return;
    uint base = row * p.width + head * p.head_dim;
    uint first = base + (p.interleaved != 0 ? 2 * pair : pair);
    uint second = base + (p.interleaved != 0 ? 2 * pair + 1 : pair + p.half_);
    precise float c = p.cos_.at[row * p.half_ + pair], s = p.sin_.at[row * p.half_ + pair];
    precise float a = p.x.at[first], b = p.x.at[second];
    precise float bs = b * s;
    precise float bc = b * c;
    precise float y0 = fma(a, c, negate(bs));
    precise float y1 = fma(a, s, bc);
    p.x.at[first] = y0;
    p.x.at[second] = y1;
}
