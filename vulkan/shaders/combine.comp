#version 460
// The chosen experts' outputs by their weights: a chain from the first on, for each element.
#include "common.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Floats weights;
    Floats out_;
    uint width;
    uint n_used;
    uint rows;
} p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.width) return;
    precise float acc = 0.0;
    for (uint u = 0; u < p.n_used; u++) {
        uint part = row * p.n_used + u;
        acc = fma(p.weights.at[part], p.x.at[part * p.width + i], acc);
    }
    p.out_.at[row * p.width + i] = acc;
}
