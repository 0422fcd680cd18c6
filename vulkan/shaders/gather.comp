#version 460
// Some rows of a slot, one behind the other.
#include "common.glsl"

layout(push_constant, std430) uniform Push {
    Words x;
    Words out_;
    Words rows_;
    uint width;
    uint n;
} p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= p.width) return;
    p.out_.at[row * p.width + i] = p.x.at[p.rows_.at[row] * p.width + i];
}
