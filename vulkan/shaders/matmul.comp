#version 460
// Matrix products of quantised rows with quantised activations: 8 rows by COLS columns a workgroup. A lane has a row's span
// of blocks, as docs/arithmetic.md cuts it, unpacks sixteen weights at a time for all columns, and the spans meet in a tree.
//
// A format is a file: LEN weights and WORDS whole words a block, REST bytes beside them, UNIT weights a step of the chain,
// ACT weights an activation scale; begin() reads a block's header, sub(i) gives the weights 16i.. with their integer factors,
// value() the unit's value from the integer sums.
#ifdef DOT
#extension GL_EXT_integer_dot_product : require
#endif
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Words w;
    Words rest;
    Words x;
    Floats y;
    Floats bias;
    Floats chosen;
    Words grid;
    uint rows;
    uint cols;
    uint blocks;
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

// Of the block at hand: where its words begin, from one to the next, and its place in the plane of rests.
uint block_word, word_stride, block_rest;

uint word_at(uint j);
uint rest_bits();

uint byte_of(uint word, uint i) { return word >> 8 * i & 255u; }

// Of bytes below 128: each less k, as signed bytes.
uint minus(uint bytes, uint k) { return ((bytes | 0x80808080u) - k * 0x01010101u) ^ 0x80808080u; }

// Four bits as the lowest ones of four bytes.
uint spread(uint bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

// Magnitudes with the signs of four bits; none is 0.
uint with_signs(uint bytes, uint bits) {
    uint negative = spread(bits);
    return (bytes ^ negative * 255u) + negative;
}

// Seven bits of signs and an eighth that makes their number even.
uint even_signs(uint bits) { return (bits & 127u) | (bitCount(bits & 127u) & 1u) << 7; }

#include "formats.glsl"

const uint SUBS = UNIT / 16;
const uint GROUP = 8;

uint word_at(uint j) { return p.w.at[block_word + j * word_stride]; }

uint rest_bits() {
#if REST == 2
    return p.rest.at[block_rest / 2] >> 16 * (block_rest % 2) & 0xffffu;
#elif REST == 1
    return p.rest.at[block_rest / 4] >> 8 * (block_rest % 4) & 0xffu;
#else
    return 0;
#endif
}

int dot4(uint a, uint b) {
#ifdef DOT
    return dotPacked4x8EXT(int(a), int(b));
#else
    ivec4 x = ivec4(int(a) << 24, int(a) << 16, int(a) << 8, int(a)) >> 24;
    ivec4 y = ivec4(int(b) << 24, int(b) << 16, int(b) << 8, int(b)) >> 24;
    ivec4 xy = x * y;
    return xy.x + xy.y + xy.z + xy.w;
#endif
}

shared float spans[64];

void main() {
    uint lane = gl_LocalInvocationID.x, row = lane / 8, span = lane % 8;
    uint group = gl_WorkGroupID.x, first_col = gl_WorkGroupID.y * COLS;
    bool experts = (p.flags & 2) != 0;
    uint expert_word = 0, expert_half = 0, expert = 0, first_x = first_col;
    if (experts) {
        expert = uint(p.chosen.at[first_col]);
        expert_word = expert * p.expert_w;
        expert_half = expert * p.expert_rest;
        if ((p.flags & 4) == 0) first_x = first_col / p.n_used;
    }
    uint length = (p.blocks + 7) / 8, full = p.blocks / length, more = p.blocks % length;
    uint scales = p.blocks * LEN / 4, sums = scales + p.blocks * LEN / ACT;
    uint live = min(COLS, p.cols - first_col);
    float acc[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) acc[c] = 0.0;
    for (uint t = 0; t < length; t++) {
        uint busy = full + (t < more ? 1 : 0);
        if (span >= busy) break;
        uint before = group * p.blocks + t * full + min(t, more);
        block_word = expert_word + before * GROUP * WORDS + row * busy + span;
        word_stride = GROUP * busy;
        block_rest = expert_half * (REST == 1 ? 4 : 2) + before * GROUP + row * busy + span;
        uint block = span * length + t;
        begin();
        for (uint unit = 0; unit < LEN / UNIT; unit++) {
            int isum[COLS], msum[COLS];
            [[unroll]] for (uint c = 0; c < COLS; c++) isum[c] = msum[c] = 0;
            for (uint i = unit * SUBS; i < (unit + 1) * SUBS; i++) {
                uvec4 q;
                int factor = 1, low = 1;
                sub(i, q, factor, low);
                uint at = block * (LEN / 4) + 4 * i;
                [[unroll]] for (uint c = 0; c < COLS; c++) {
                    if (c >= live) continue;
                    uint x = (first_x + c) * p.record + at;
                    int d = dot4(q.x, p.x.at[x]) + dot4(q.y, p.x.at[x + 1]) + dot4(q.z, p.x.at[x + 2])
                        + dot4(q.w, p.x.at[x + 3]);
                    isum[c] += factor * d;
                    if (HAS_MIN == 1) {
                        msum[c] += low * int(p.x.at[(first_x + c) * p.record + sums + block * (LEN / 16) + i]);
                    }
                }
            }
            uint scale_at = scales + (block * LEN + unit * UNIT) / ACT;
            [[unroll]] for (uint c = 0; c < COLS; c++) {
                if (c >= live) continue;
                precise float v = value(unit, isum[c], msum[c]);
                precise float sum = fma(F(p.x.at[(first_x + c) * p.record + scale_at]), v, acc[c]);
                acc[c] = sum;
            }
        }
    }
    for (uint c = 0; c < COLS; c++) {
        spans[lane] = acc[c];
        barrier();
        uint out_row = group * GROUP + lane;
        if (lane < GROUP && out_row < p.rows && c < live) {
            uint at = 8 * lane;
            precise float y = tree8(spans[at], spans[at + 1], spans[at + 2], spans[at + 3], spans[at + 4],
                spans[at + 5], spans[at + 6], spans[at + 7]);
            if ((p.flags & 1) != 0) y = y + p.bias.at[expert * p.bias_stride + out_row];
            p.y.at[(first_col + c) * p.y_stride + p.y_first + out_row] = y;
        }
        barrier();
    }
}
