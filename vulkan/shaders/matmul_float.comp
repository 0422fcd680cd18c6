#version 460
// Matrix products of rows of floats with rows of floats: 8 rows by COLS columns a workgroup. A lane has the elements of its
// row whose number has its remainder modulo 8, and the eight partial sums meet in a tree.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Words w;
    Words rest;
    Floats x;
    Floats y;
    Floats bias;
    Floats chosen;
    Words grid;
    uint rows;
    uint cols;
    uint blocks; // elements of a row
    uint record;
    uint y_stride;
    uint y_first;
    uint flags; // 1: bias, 2: experts, 4: the input has a row for each choice
    uint n_used;
    uint expert_w;
    uint expert_rest;
    uint bias_stride;
} p;

layout(constant_id = 0) const uint COLS = 1;

// The element i of a row that begins at a word.
float weight(uint row, uint i) {
#if defined(FORMAT_F32)
    return F(p.w.at[row + i]);
#else
    uint bits = p.w.at[row + i / 2] >> 16 * (i % 2) & 0xffffu;
#if defined(FORMAT_F16)
    return f16_to_f32(bits);
#else
    return F(bits << 16);
#endif
#endif
}

shared float partial[64];

void main() {
    uint lane = gl_LocalInvocationID.x, row = lane / 8, first = lane % 8;
    uint group = gl_WorkGroupID.x, first_col = gl_WorkGroupID.y * COLS;
    uint expert = 0, first_x = first_col;
    if ((p.flags & 2) != 0) {
        expert = uint(p.chosen.at[first_col]);
        if ((p.flags & 4) == 0) first_x = first_col / p.n_used;
    }
#if defined(FORMAT_F32)
    uint words = p.blocks;
#else
    uint words = (p.blocks + 1) / 2;
#endif
    uint at = expert * p.expert_w + (group * 8 + row) * words;
    uint live = min(COLS, p.cols - first_col);
    float acc[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) acc[c] = 0.0;
    for (uint i = first; i < p.blocks; i += 8) {
        float w = weight(at, i);
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            if (c >= live) continue;
            precise float sum = fma(w, p.x.at[(first_x + c) * p.record + i], acc[c]);
            acc[c] = sum;
        }
    }
    for (uint c = 0; c < COLS; c++) {
        partial[lane] = acc[c];
        barrier();
        uint out_row = group * 8 + lane;
        if (lane < 8 && out_row < p.rows && c < live) {
            uint b = 8 * lane;
            precise float y = tree8(partial[b], partial[b + 1], partial[b + 2], partial[b + 3], partial[b + 4],
                partial[b + 5], partial[b + 6], partial[b + 7]);
            if ((p.flags & 1) != 0) y = y + p.bias.at[expert * p.bias_stride + out_row];
            p.y.at[(first_col + c) * p.y_stride + p.y_first + out_row] = y;
        }
        barrier();
    }
}
