//! llamay's own elementary functions: the same bits on every machine.
//!
//! They are made of `+ − × ÷ sqrt fma` (each correctly rounded by IEEE 754, so equal everywhere) and integer operations,
//! with selects instead of branches and no call into libm. All are `#[inline(always)]`: inside a caller with
//! `#[target_feature(enable = "avx2,fma")]` a loop over them becomes vector code that computes the same bits as the scalar
//! code. Outside of such a caller `mul_add` may be a function call: correct, and slow.
//!
//! | function | error over all of f32, at most |
//! |---|---|
//! | [`exp`] | 1.1 ulp |
//! | [`tanh`] | 3.0 ulp |
//! | [`erf`] | 1.5 ulp |
//! | [`sin_cos`] | 1.1 ulp for angles up to 2²¹ |
//! | [`sigmoid`], [`silu`] | 3.0 ulp |
//! | [`gelu_tanh`], [`gelu_erf`] | 1.5 × 10⁻⁷ of `x` (a relative bound cannot hold in their negative tails) |
//! | [`relu`], [`relu_squared`] | 0.5 ulp |
//! | [`recip`], [`recip_newton`] | 0.5 ulp |
//! | [`rsqrt`] | 1.5 ulp |
//!
//! Subnormals never leave: a result that would be one is `+0`, and a zero result is `+0` whatever its sign was, so a
//! device that flushes subnormals computes the same. NaN in gives NaN out.
//!
//! The polynomials come from `tools/math/remez.py`; `tests/math.rs` samples the errors and `examples/math_exhaustive.rs`
//! measures them over every f32.

mod erf;
mod exp;
mod recip;
mod relu;
mod trig;

pub use erf::{erf, gelu_erf};
pub(crate) use exp::{EXP_MIN, EXPM1, LN2_HI, LN2_LO, LOG2_E};
pub use exp::{exp, gelu_tanh, sigmoid, silu, tanh};
pub use recip::{div_newton, recip, recip_newton, rsqrt};
pub use relu::{clipped_swiglu, relu, relu_squared};
pub use trig::{MAX_ANGLE, sin_cos};

/// Adding this to |x| < 2²² rounds x to the nearest integer (ties to even): it leaves no mantissa bits for a fraction.
/// The integer is then in the low mantissa bits, in two's complement.
pub(crate) const ROUND: f32 = 12_582_912.0; // 1.5 × 2²³

/// `+0` instead of zeros and subnormals.
#[inline(always)]
fn flush(y: f32) -> f32 {
    if y.abs() < f32::MIN_POSITIVE { 0.0 } else { y }
}

/// |magnitude| with the sign of `sign`, by bits.
#[inline(always)]
fn with_sign(magnitude: f32, sign: f32) -> f32 {
    f32::from_bits(magnitude.to_bits() | (sign.to_bits() & 0x8000_0000))
}
