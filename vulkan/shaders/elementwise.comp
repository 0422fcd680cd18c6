#version 460
// out = f(x, y), element by element.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Floats y;
    Floats out_;
    uint n;
    float scale;
} p;

layout(constant_id = 0) const uint OP = 0;
layout(constant_id = 1) const uint KIND = 0;

float f(float x, float y) {
    precise float r = 0.0;
    switch (OP) {
        case 0u:
            r = x + y;
            break;
        case 1u:
            r = fma(y, p.scale, x);
            break;
        case 2u:
            r = x * p.scale;
            break;
        case 3u: {
            precise float t = tanh_(div(x, p.scale));
            r = p.scale * t;
            break;
        }
        case 4u:
            r = nonlinearity(KIND, x);
            break;
        case 5u: {
            precise float g = nonlinearity(KIND, x);
            r = g * y;
            break;
        }
        default:
            r = clipped_swiglu(x, y);
    }
    return r;
}

void main() {
    uint stride = gl_NumWorkGroups.x * 64;
    for (uint i = gl_GlobalInvocationID.x; i < p.n; i += stride) {
        p.out_.at[i] = f(p.x.at[i], p.y.at[i]);
    }
}
