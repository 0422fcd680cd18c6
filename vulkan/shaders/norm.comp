#version 460
// A norm of each part of a row: eight lanes run the chains of the strided sums, all load and store.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Floats weight;
    Floats bias;
    Floats out_;
    uint len;
    uint parts;
    uint rows;
    uint flags; // 1: layer norm, 2: has a weight, 4: has a bias
    uint weight_parts;
    float eps;
} p;

const uint TILE = 1024;
shared float tile[TILE];
shared float partial[8];

float step_(float acc, float x, bool squares, float mean) {
    precise float d = x - mean;
    precise float with_square = fma(d, d, acc);
    precise float with_x = acc + x;
    return squares ? with_square : with_x;
}

// The strided sum of x, or of (x - mean)^2 by fma.
float strided(uint first, bool squares, float mean) {
    uint lane = gl_LocalInvocationID.x;
    precise float acc = 0.0;
    for (uint base = 0; base < p.len; base += TILE) {
        uint n = min(TILE, p.len - base);
        for (uint i = lane; i < n; i += 64) tile[i] = p.x.at[first + base + i];
        barrier();
        if (lane < 8) {
            uint i = lane;
            // Eight loads at once, so that the chain does not wait for each.
            for (; i + 56 < n; i += 64) {
                float v[8];
                [[unroll]] for (uint j = 0; j < 8; j++) v[j] = tile[i + 8 * j];
                [[unroll]] for (uint j = 0; j < 8; j++) acc = step_(acc, v[j], squares, mean);
            }
            for (; i < n; i += 8) acc = step_(acc, tile[i], squares, mean);
        }
        barrier();
    }
    if (lane < 8) partial[lane] = acc;
    barrier();
    float sum =
        tree8(partial[0], partial[1], partial[2], partial[3], partial[4], partial[5], partial[6], partial[7]);
    barrier();
    return sum;
}

void main() {
    uint lane = gl_LocalInvocationID.x, part = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    uint first = (row * p.parts + part) * p.len;
    bool layer = (p.flags & 1) != 0, weighted = (p.flags & 2) != 0, biased = (p.flags & 4) != 0;
    precise float n = float(p.len);
    precise float mean = 0.0;
    if (layer) mean = div(strided(first, false, 0.0), n);
    precise float share = div(strided(first, true, mean), n);
    precise float sum = share + p.eps;
    precise float r = rsqrt_exact(sum);
    uint at = p.weight_parts == 0 ? 0 : part % p.weight_parts * p.len;
    for (uint i = lane; i < p.len; i += 64) {
        precise float d = p.x.at[first + i] - mean;
        precise float y = d * r;
        if (weighted && biased) {
            y = fma(y, p.weight.at[at + i], p.bias.at[at + i]);
        } else if (weighted) {
            precise float scaled = y * p.weight.at[at + i];
            y = scaled;
        } else if (biased) {
            precise float moved = y + p.bias.at[at + i];
            y = moved;
        }
        p.out_.at[first + i] = y;
    }
}
