#version 460
// Attention of a head of a token over one page, for contexts so long that pages are shared out: a workgroup for each.
#include "common.glsl"
#include "math.glsl"
#include "kv_layout.glsl"
#include "attention_tile.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, n = p.head_dim;
    Seen seen = seen_by(token);
    uint number = seen.first / PAGE + gl_WorkGroupID.z;
    // The same for all lanes.
    if (number > seen.position / PAGE) return;
    uint keys = keys_of(head), values = keys + side_words(n);
    load_query((token * p.heads + head) * n);
    Words page = p.pages.at[seen.table + number];
    uvec2 at = range(seen, number);
    float page_m, page_l;
    weigh(page, keys, at, page_m, page_l);
    uint to = ((token * p.heads + head) * p.max_pages + gl_WorkGroupID.z) * (n + 2);
    for (uint d = lane; d < n; d += 64) p.scratch.at[to + d] = weighted(page, values, at, d);
    if (lane == 0) {
        p.scratch.at[to + n] = page_m;
        p.scratch.at[to + n + 1] = page_l;
    }
}
