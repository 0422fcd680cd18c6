#version 460
// Merges the pages of a head of a token that attention_pages.comp has left, from left to right.
#include "common.glsl"
#include "math.glsl"
#include "attention_end.glsl"

layout(push_constant, std430) uniform Push {
    Floats scratch;
    Floats out_;
    Words tokens;
    Floats sinks;
    uint heads;
    uint head_dim;
    uint window; // 0: all
    uint max_pages;
    uint flags; // 1: has sinks
} p;

const uint PAGE = 64;

void main() {
    uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, n = p.head_dim;
    uint position = p.tokens.at[2 * token];
    uint first = p.window == 0 || position + 1 < p.window ? 0 : position + 1 - p.window;
    uint pages = position / PAGE - first / PAGE + 1, row = token * p.heads + head;
    uint from = row * p.max_pages * (n + 2);
    bool sunk = (p.flags & 1) != 0;
    for (uint d = lane; d < n; d += 64) {
        float o = p.scratch.at[from + d], m = p.scratch.at[from + n], l = p.scratch.at[from + n + 1];
        for (uint i = 1; i < pages; i++) {
            uint at = from + i * (n + 2);
            vec3 by = joining(m, p.scratch.at[at + n]);
            o = joined(o, p.scratch.at[at + d], by);
            l = joined(l, p.scratch.at[at + n + 1], by);
            m = by.z;
        }
        vec2 factors = last_factors(m, l, sunk, sunk ? p.sinks.at[head] : 0.0);
        p.out_.at[row * n + d] = finished(o, factors, sunk);
    }
}
