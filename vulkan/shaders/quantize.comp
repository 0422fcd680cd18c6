#version 460
// Rows of floats to signed bytes with a scale a block (formats/src/activation.rs): a lane has four elements.
#include "common.glsl"
#include "math.glsl"

layout(push_constant, std430) uniform Push {
    Floats x;
    Words out_;
    uint k;
    uint rows;
    uint block; // 32 or 256
    uint record;
} p;

shared uint largest[64];
shared int sums[64];

void main() {
    uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
    uint word = gl_WorkGroupID.x * 64 + lane;
    bool inside = 4 * word < p.k;
    uint from = row * p.k + 4 * word;
    float x0 = 0.0, x1 = 0.0, x2 = 0.0, x3 = 0.0;
    if (inside) {
        x0 = p.x.at[from];
        x1 = p.x.at[from + 1];
        x2 = p.x.at[from + 2];
        x3 = p.x.at[from + 3];
    }
    // By bits, a NaN is the largest magnitude.
    uvec4 m = floatBitsToUint(vec4(x0, x1, x2, x3)) & 0x7fffffffu;
    largest[lane] = max(max(m.x, m.y), max(m.z, m.w));
    barrier();
    uint lanes = p.block / 4;
    for (uint half_ = lanes / 2; half_ > 0; half_ /= 2) {
        uint other = largest[lane ^ half_];
        barrier();
        largest[lane] = max(largest[lane], other);
        barrier();
    }
    uint bits = largest[lane];
    precise float scale = F(bits) * F(0x3c010204u);
    if (bits < 0x12800000u) scale = 0.0;
    precise float inverse = scale > 0.0 ? recip(scale) : 0.0;
    precise float t0 = x0 * inverse, t1 = x1 * inverse, t2 = x2 * inverse, t3 = x3 * inverse;
    precise float r0 = t0 + ROUND, r1 = t1 + ROUND, r2 = t2 + ROUND, r3 = t3 + ROUND;
    // The low mantissa bits hold the nearest integer, in two's complement.
    uvec4 q = floatBitsToUint(vec4(r0, r1, r2, r3)) & 255u;
    // An infinity or a NaN spoils the scale; the quants are zeros, as the host's are.
    if (bits >= 0x7f800000u) q = uvec4(0u);
    ivec4 signed_ = bitfieldExtract(ivec4(q), 0, 8);
    sums[lane] = signed_.x + signed_.y + signed_.z + signed_.w;
    barrier();
    if (!inside) return;
    uint to = row * p.record;
    p.out_.at[to + word] = q.x | q.y << 8 | q.z << 16 | q.w << 24;
    if (lane % lanes == 0) p.out_.at[to + p.k / 4 + word / lanes] = floatBitsToUint(scale);
    if (lane % 4 == 0) {
        int sum = sums[lane] + sums[lane + 1] + sums[lane + 2] + sums[lane + 3];
        p.out_.at[to + p.k / 4 + p.k / p.block + word / 4] = uint(sum);
    }
}
