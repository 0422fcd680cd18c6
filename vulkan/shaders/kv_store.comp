#version 460
// A position's keys and values into its page of the cache: a workgroup for a head of a token.
#include "common.glsl"
#include "math.glsl"
#include "kv_layout.glsl"

layout(push_constant, std430) uniform Push {
    Floats k;
    Floats v;
    Words tokens;
    Table pages;
    Words starts;
    uint rows;
    uint heads;
    uint head_dim;
    uint group;
    uint n_groups;
    uint layer;
} p;

// Quantises a block; a lane for each.
void store_block(Words page, uint side, uint at, uint b, float x[32], bool key) {
    if (key) turn(x, 0.25);
    uint amax = largest_magnitude(x);
    uint words = position_words(p.head_dim), per_block = words / blocks(p.head_dim);
    precise float scale;
    uint q[32];
    if (KIND == 2) {
        scale = F(amax) * F(0x3c010204u);
        if (amax < 0x12800000u) scale = 0.0;
        precise float inverse = scale > 0.0 ? recip(scale) : 0.0;
        for (uint i = 0; i < 32; i++) q[i] = low_byte(x[i], inverse);
    } else {
        precise float size = F(amax) * 0.125;
        if (amax < 0x12800000u) size = 0.0;
        bool positive = false;
        for (uint i = 0; i < 32; i++) positive = positive || x[i] == F(amax);
        scale = positive ? negate(size) : size;
        precise float inverse = size > 0.0 ? recip(scale) : 0.0;
        for (uint i = 0; i < 32; i++) {
            int n = bitfieldExtract(int(low_byte(x[i], inverse)), 0, 8);
            q[i] = uint(min(n, 7) + 8);
        }
    }
    for (uint w = 0; w < per_block; w++) {
        uint word = 0;
        for (uint i = 0; i < 4; i++) {
            uint byte = KIND == 2 ? q[4 * w + i] : q[4 * w + i] | q[16 + 4 * w + i] << 4;
            word |= byte << 8 * i;
        }
        uint place = key ? (b * per_block + w) * PAGE + at : at * words + b * per_block + w;
        page.at[side + place] = word;
    }
    page.at[side + PAGE * words + b * PAGE + at] = floatBitsToUint(f16_to_f32(f32_to_f16(scale)));
}

void main() {
    uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, token = gl_WorkGroupID.y;
    uint position = p.tokens.at[2 * token], sequence = p.tokens.at[2 * token + 1];
    Words page = p.pages.at[p.starts.at[sequence * p.n_groups + p.group] + position / PAGE];
    uint at = position % PAGE, n = p.head_dim;
    uint keys = p.layer + head * 2 * side_words(n), values = keys + side_words(n);
    uint from = (token * p.heads + head) * n;
    if (KIND == 0) {
        for (uint d = lane; d < n; d += 64) {
            page.at[keys + d * PAGE + at] = floatBitsToUint(p.k.at[from + d]);
            page.at[values + at * n + d] = floatBitsToUint(p.v.at[from + d]);
        }
    } else if (KIND == 1) {
        uint words = position_words(n);
        for (uint w = lane; w < words; w += 64) {
            bool both = 2 * w + 1 < n;
            uint k = f32_to_f16(p.k.at[from + 2 * w]), v = f32_to_f16(p.v.at[from + 2 * w]);
            if (both) {
                k |= f32_to_f16(p.k.at[from + 2 * w + 1]) << 16;
                v |= f32_to_f16(p.v.at[from + 2 * w + 1]) << 16;
            }
            page.at[keys + w * PAGE + at] = k;
            page.at[values + at * words + w] = v;
        }
    } else {
        // The first half of the lanes has the keys' blocks, the second the values'.
        bool key = lane < 32;
        for (uint b = lane % 32; b < blocks(n); b += 32) {
            float x[32];
            for (uint i = 0; i < 32; i++) {
                uint d = 32 * b + i;
                x[i] = d < n ? (key ? p.k.at[from + d] : p.v.at[from + d]) : 0.0;
            }
            store_block(page, key ? keys : values, at, b, x, key);
        }
    }
}
