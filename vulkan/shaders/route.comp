#version 460
// Chooses a token's experts: of equal scores the lower number, and a score that is no number wins over nothing but nothing.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Floats bias;
    Floats chosen;
    Floats weights;
    uint n_expert;
    uint n_used;
    uint rows;
    uint flags;   // 1: has a bias, 2: normalise
    uint scoring; // 0: softmax, 1: softmax of the chosen, 2: sigmoid
    float scale;
} p;

const uint MOST = 1024;
shared float shares[MOST];
shared float ranks[MOST];
shared float best_rank[64];
shared uint best_expert[64];
shared float picked[MOST];
shared float partial[8];

const uint NONE = 0xffffffffu;

// The strided sum of the first n of `shares` or of `picked`.
float strided(bool of_picked, uint n) {
    uint lane = gl_LocalInvocationID.x;
    precise float acc = 0.0;
    if (lane < 8) {
        for (uint i = lane; i < n; i += 8) acc = acc + (of_picked ? picked[i] : shares[i]);
        partial[lane] = acc;
    }
    barrier();
    float sum = tree8(partial[0], partial[1], partial[2], partial[3], partial[4], partial[5], partial[6], partial[7]);
    barrier();
    return sum;
}

void scale_all(bool of_picked, uint n, float factor) {
    for (uint i = gl_LocalInvocationID.x; i < n; i += 64) {
        precise float y = (of_picked ? picked[i] : shares[i]) * factor;
        if (of_picked) picked[i] = y;
        else shares[i] = y;
    }
    barrier();
}

void softmax(bool of_picked, uint n) {
    float most = negate(INFINITY);
    for (uint i = 0; i < n; i++) {
        float v = of_picked ? picked[i] : shares[i];
        most = v > most ? v : most;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < n; i += 64) {
        precise float d = (of_picked ? picked[i] : shares[i]) - most;
        float e = exp_(d);
        if (of_picked) picked[i] = e;
        else shares[i] = e;
    }
    barrier();
    scale_all(of_picked, n, recip(strided(of_picked, n)));
}

void main() {
    uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, n = p.n_expert;
    for (uint e = lane; e < n; e += 64) {
        float x = p.x.at[row * n + e];
        shares[e] = p.scoring == 2 ? sigmoid(x) : x;
    }
    barrier();
    if (p.scoring == 0) softmax(false, n);
    for (uint e = lane; e < n; e += 64) {
        precise float rank = shares[e];
        if ((p.flags & 1) != 0) rank = rank + p.bias.at[e];
        ranks[e] = rank;
    }
    barrier();
    // Each lane knows which of its own experts are taken.
    uint taken = 0;
    for (uint u = 0; u < p.n_used; u++) {
        // Of the lowest number that is not taken; numbers of the others are compared with it.
        uint best = NONE;
        float rank = 0.0;
        for (uint e = lane, i = 0; e < n; e += 64, i++) {
            bool is_free = (taken & (1u << i)) == 0;
            if (is_free && (best == NONE || ranks[e] > rank)) {
                best = e;
                rank = ranks[e];
            }
        }
        best_rank[lane] = rank;
        best_expert[lane] = best;
        barrier();
        // A number that is none is beaten by nobody behind it, so the order matters: expert by expert where there is one.
        uint winner = NONE;
        bool odd = false;
        for (uint e = 0; e < n; e++) odd = odd || is_nan(ranks[e]);
        if (odd) {
            float top = 0.0;
            for (uint e = 0; e < n; e++) {
                bool is_free = true;
                for (uint i = 0; i < u; i++) is_free = is_free && p.chosen.at[row * p.n_used + i] != float(e);
                if (is_free && (winner == NONE || ranks[e] > top)) {
                    winner = e;
                    top = ranks[e];
                }
            }
        } else {
            float top = 0.0;
            for (uint l = 0; l < 64; l++) {
                uint e = best_expert[l];
                if (e == NONE) continue;
                if (winner == NONE || best_rank[l] > top || (best_rank[l] == top && e < winner)) {
                    winner = e;
                    top = best_rank[l];
                }
            }
        }
        bool none = winner == NONE;
        if (none) winner = 0;
        barrier();
        if (!none && winner % 64 == lane) taken |= 1u << (winner / 64);
        if (lane == 0) {
            picked[u] = shares[winner];
            p.chosen.at[row * p.n_used + u] = float(winner);
        }
        memoryBarrierBuffer();
        barrier();
    }
    if (p.scoring == 1) softmax(true, p.n_used);
    if ((p.flags & 2) != 0) scale_all(true, p.n_used, recip(strided(true, p.n_used)));
    scale_all(true, p.n_used, p.scale);
    for (uint u = lane; u < p.n_used; u += 64) p.weights.at[row * p.n_used + u] = picked[u];
}
