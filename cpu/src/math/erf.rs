//! The error function.

use super::exp::exp_in_range;
use super::{flush, with_sign};

/// The error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();

    // |x| < SEAM: erf(x) = x + x p(x²); relative error 2^-25.1.
    const SEAM: f32 = 0.9375;
    let z = x * x;
    let p = f32::from_bits(0xba19_0dc4);
    let p = p.mul_add(z, f32::from_bits(0x3ba2_9342));
    let p = p.mul_add(z, f32::from_bits(0xbcdb_154d));
    let p = p.mul_add(z, f32::from_bits(0x3de7_09a6));
    let p = p.mul_add(z, f32::from_bits(0xbec0_935b));
    let p = p.mul_add(z, f32::from_bits(0x3e03_75d2));
    let near = x.mul_add(p, x);

    // Else erf(|x|) = 1 − e^t(|x|), relative error 2^-29.3, and 1 from 3.95 on.
    let b = if a > 3.95 { 3.95 } else { a };
    let t = f32::from_bits(0x394b_535d);
    let t = t.mul_add(b, f32::from_bits(0xbb46_2104));
    let t = t.mul_add(b, f32::from_bits(0x3cb5_6d2d));
    let t = t.mul_add(b, f32::from_bits(0xbdd4_827f));
    let t = t.mul_add(b, f32::from_bits(0xbf23_2aeb));
    let t = t.mul_add(b, f32::from_bits(0xbf90_53ee));
    let t = t.mul_add(b, f32::from_bits(0xb96a_5c5e));
    let far = with_sign(1.0 - exp_in_range(t), x);

    // A NaN compares false and goes the way that keeps it.
    flush(if a >= SEAM { far } else { near })
}

/// GELU: x/2 · (1 + erf(x/√2)).
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    flush(0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)))
}
