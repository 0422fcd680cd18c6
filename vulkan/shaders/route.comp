#version 460
// Chooses a token's experts: of equal scores the lower number; NaN wins over nothing but nothing.
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

const uint MOST = 1024;      // experts
const uint MOST_USED = 64;
const uint NONE = 0xffffffffu;
shared float shares[MOST];
shared float ranks[MOST];
shared float picked[MOST_USED];
shared float partial[8];
shared float best_rank[64];
shared uint best[64];
shared uint first[64];

// The values that a step is about: all shares, or the chosen ones.
float value(bool of_picked, uint i) { return of_picked ? picked[i] : shares[i]; }

void set_value(bool of_picked, uint i, float v) {
    if (of_picked) picked[i] = v;
    else shares[i] = v;
}

float strided(bool of_picked, uint n) {
    uint lane = gl_LocalInvocationID.x;
    if (lane < 8) {
        precise float acc = 0.0;
        for (uint i = lane; i < n; i += 8) acc = acc + value(of_picked, i);
        partial[lane] = acc;
    }
    barrier();
    float sum =
        tree8(partial[0], partial[1], partial[2], partial[3], partial[4], partial[5], partial[6], partial[7]);
    barrier();
    return sum;
}

void scale_all(bool of_picked, uint n, float factor) {
    for (uint i = gl_LocalInvocationID.x; i < n; i += 64) {
        precise float y = value(of_picked, i) * factor;
        set_value(of_picked, i, y);
    }
    barrier();
}

// The greatest of the values that are numbers.
float greatest(bool of_picked, uint n) {
    uint lane = gl_LocalInvocationID.x;
    float most = negate(INFINITY);
    for (uint i = lane; i < n; i += 64) {
        float v = value(of_picked, i);
        if (!is_nan(v) && v > most) most = v;
    }
    best_rank[lane] = most;
    barrier();
    for (uint half_ = 32; half_ > 0; half_ /= 2) {
        if (lane < half_) {
            float other = best_rank[lane + half_];
            if (other > best_rank[lane]) best_rank[lane] = other;
        }
        barrier();
    }
    most = best_rank[0];
    barrier();
    return most;
}

void softmax(bool of_picked, uint n) {
    float most = greatest(of_picked, n);
    for (uint i = gl_LocalInvocationID.x; i < n; i += 64) {
        precise float d = value(of_picked, i) - most;
        set_value(of_picked, i, exp_(d));
    }
    barrier();
    scale_all(of_picked, n, recip(strided(of_picked, n)));
}

// The best of the experts that this lane has and that are not taken, and the first of them.
void offer(uint taken) {
    uint lane = gl_LocalInvocationID.x;
    uint found = NONE, lowest = NONE;
    float rank = 0.0;
    for (uint e = lane, i = 0; e < p.n_expert; e += 64, i++) {
        if ((taken & (1u << i)) != 0) continue;
        float r = ranks[e];
        lowest = min(lowest, e);
        if (!is_nan(r) && (found == NONE || r > rank)) {
            found = e;
            rank = r;
        }
    }
    best_rank[lane] = rank;
    best[lane] = found;
    first[lane] = lowest;
}

// The better of two lanes' experts becomes the first one's.
void meet(uint a, uint b) {
    first[a] = min(first[a], first[b]);
    if (best[b] == NONE) return;
    bool better = best[a] == NONE || best_rank[b] > best_rank[a];
    if (better || (best_rank[b] == best_rank[a] && best[b] < best[a])) {
        best[a] = best[b];
        best_rank[a] = best_rank[b];
    }
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
    uint taken = 0; // bit i: this lane's expert lane + 64 i
    for (uint u = 0; u < p.n_used; u++) {
        offer(taken);
        barrier();
        for (uint half_ = 32; half_ > 0; half_ /= 2) {
            if (lane < half_) meet(lane, lane + half_);
            barrier();
        }
        // The first that is left comes first: nothing is greater than a rank that is no number.
        uint lowest = first[0];
        uint winner = lowest != NONE && is_nan(ranks[lowest]) ? lowest : best[0];
        barrier();
        if (winner == NONE) winner = 0;
        else if (winner % 64 == lane) taken |= 1u << (winner / 64);
        if (lane == 0) {
            picked[u] = shares[winner];
            p.chosen.at[row * p.n_used + u] = float(winner);
        }
    }
    barrier();
    if (p.scoring == 1) softmax(true, p.n_used);
    if ((p.flags & 2) != 0) scale_all(true, p.n_used, recip(strided(true, p.n_used)));
    scale_all(true, p.n_used, p.scale);
    for (uint u = lane; u < p.n_used; u += 64) p.weights.at[row * p.n_used + u] = picked[u];
}
