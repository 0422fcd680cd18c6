//! The exponential and what is built on it.

use super::{ROUND, flush, with_sign};

pub(crate) const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln 2 in two parts: `x − k · LN2_HI` is exact in one fma for every x that `exp` takes.
pub(crate) const LN2_HI: f32 = f32::from_bits(0x3f31_7218);
pub(crate) const LN2_LO: f32 = f32::from_bits(0xb102_e308);

/// expm1(r) = r + r² q(r) for |r| ≤ 0.3466, relative error 2^-26.1: the coefficients of q, the highest power first.
pub(crate) const EXPM1: [f32; 5] = [
    f32::from_bits(0x3ab5_cb63),
    f32::from_bits(0x3c09_12a0),
    f32::from_bits(0x3d2a_ab7b),
    f32::from_bits(0x3e2a_aa5a),
    f32::from_bits(0x3eff_ffff),
];

/// Below this exp is 0: e^-87.3 is the last round figure that is a normal number.
pub(crate) const EXP_MIN: f32 = -87.3;
/// ln(f32::MAX). Above it exp is infinite.
const EXP_MAX: f32 = f32::from_bits(0x42b1_7217);

/// `x = k ln 2 + r` with |r| ≤ 0.3466, as (k, expm1(r)); for |x| < 100.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let t = x.mul_add(LOG2_E, ROUND);
    let k = t - ROUND;
    let r = k.mul_add(-LN2_HI, x);
    let r = k.mul_add(-LN2_LO, r);

    let q = EXPM1[0];
    let q = q.mul_add(r, EXPM1[1]);
    let q = q.mul_add(r, EXPM1[2]);
    let q = q.mul_add(r, EXPM1[3]);
    let q = q.mul_add(r, EXPM1[4]);
    (t.to_bits().wrapping_sub(ROUND.to_bits()) as i32, (r * r).mul_add(q, r))
}

/// e^x for `EXP_MIN ≤ x ≤ EXP_MAX`; any bits for other x, NaN too.
#[inline(always)]
pub(super) fn exp_in_range(x: f32) -> f32 {
    let (k, p) = reduce(x);
    // The product with 2^k is an addition to the exponent, since the result is normal (or exactly 2^128: infinity).
    f32::from_bits((1.0 + p).to_bits().wrapping_add((k << 23) as u32))
}

/// e^x. Infinite for x > ln(f32::MAX) ≈ 88.72, and 0 for x < −87.3, so that no subnormal appears.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let y = exp_in_range(x);
    let y = if x < EXP_MIN { 0.0 } else { y };
    let y = if x > EXP_MAX { f32::INFINITY } else { y };
    if x.is_nan() { x } else { y }
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    // tanh(10) is nearer to 1 than half an ulp.
    let a = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    // m = expm1(2a) = 2^k expm1(r) + (2^k − 1) keeps full relative precision down to a → 0.
    let (k, p) = reduce(a + a);
    let scale = f32::from_bits(1f32.to_bits().wrapping_add((k << 23) as u32));
    let m = scale.mul_add(p, scale - 1.0);
    flush(with_sign(m / (m + 2.0), x))
}

/// The logistic function 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    flush(1.0 / (1.0 + exp(-x)))
}

/// SiLU (swish): x / (1 + e^-x). 0 for x < −88.72, NaN for x = −∞.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    flush(x / (1.0 + exp(-x)))
}

/// GELU, tanh form: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), computed as x / (1 + e^-2u), which is the same function
/// without the cancellation. NaN for x = −∞.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const A: f32 = f32::from_bits(0x3fcc_422a); // √(8/π)
    const B: f32 = f32::from_bits(0x3d92_2279); // 0.044715 √(8/π)
    let two_u = x * (x * x).mul_add(B, A);
    flush(x / (1.0 + exp(-two_u)))
}
