#version 460
// Cosines and sines of every token's angles: a lane for each frequency of a token.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Words tokens;
    Floats frequencies;
    Floats magnitudes;
    Floats cos_;
    Floats sin_;
    uint half_;
    uint rows;
} p;

void main() {
    uint i = gl_GlobalInvocationID.x;
    uint row = gl_WorkGroupID.y;
    if (i >= p.half_) return;
    precise float angle = float(p.tokens.at[2 * row]) * p.frequencies.at[i];
    precise float s, c;
    sin_cos(angle, s, c);
    precise float magnitude = p.magnitudes.at[row];
    p.cos_.at[row * p.half_ + i] = c * magnitude;
    p.sin_.at[row * p.half_ + i] = s * magnitude;
}
