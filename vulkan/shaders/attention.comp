#version 460
// Attention of a head of a token over the pages that it sees, merged from left to right.
#include "common.glsl"
#include "math.glsl"
#include "kv_layout.glsl"
#include "attention_tile.glsl"
#include "attention_end.glsl"

shared float state[MOST];

void main() {
    uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, n = p.head_dim;
    Seen seen = seen_by(token);
    uint keys = keys_of(head), values = keys + side_words(n), row = (token * p.heads + head) * n;
    load_query(row);
    float m = 0.0, l = 0.0;
    for (uint number = seen.first / PAGE; number <= seen.position / PAGE; number++) {
        Words page = p.pages.at[seen.table + number];
        uvec2 at = range(seen, number);
        float page_m, page_l;
        weigh(page, keys, at, page_m, page_l);
        bool merge = number > seen.first / PAGE;
        vec3 by = merge ? joining(m, page_m) : vec3(0.0, 0.0, page_m);
        for (uint d = lane; d < n; d += 64) {
            float o = weighted(page, values, at, d);
            state[d] = merge ? joined(state[d], o, by) : o;
        }
        l = merge ? joined(l, page_l, by) : page_l;
        m = by.z;
        barrier();
    }
    bool sunk = (p.flags & 1) != 0;
    vec2 factors = last_factors(m, l, sunk, sunk ? p.sinks.at[head] : 0.0);
    for (uint d = lane; d < n; d += 64) p.out_.at[row + d] = finished(state[d], factors, sunk);
}
