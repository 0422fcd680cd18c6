//! Sine and cosine of rotary angles.

use super::{ROUND, flush};

/// The largest angle, in radians, that [`sin_cos`] takes: 2²¹, beyond two million positions at frequency 1.
pub const MAX_ANGLE: f32 = 2_097_152.0;

const TWO_OVER_PI: f32 = f32::from_bits(0x3f22_f983);
/// π/2 in three parts of 24 bits.
const PIO2_1: f32 = f32::from_bits(0x3fc9_0fdb);
const PIO2_2: f32 = f32::from_bits(0xb33b_bd2e);
const PIO2_3: f32 = f32::from_bits(0xa6f7_2ced);

/// (sin x, cos x) for |x| ≤ [`MAX_ANGLE`]; (NaN, NaN) beyond: an angle that could not be told exactly must not
/// pass for one.
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    let x = if x.abs() <= MAX_ANGLE { x } else { f32::NAN };

    // x = n π/2 + hi + lo (Cody–Waite). 2/π is rounded, which moves n by up to 0.054 at MAX_ANGLE: |hi| ≤ 0.88.
    let t = x.mul_add(TWO_OVER_PI, ROUND);
    let quadrant = t.to_bits();
    let n = t - ROUND;
    // Exact: |r| < 1, and a multiple of 2^-23 or of an ulp of x.
    let r = n.mul_add(-PIO2_1, x);
    // r − n PIO2_2, with the rounding errors of the product and (Knuth's two-sum) of the difference.
    let product = n * PIO2_2;
    let product_lo = n.mul_add(PIO2_2, -product);
    let hi = r - product;
    let back = hi - r;
    let hi_lo = (r - (hi - back)) - (product + back);
    let lo = n.mul_add(-PIO2_3, hi_lo - product_lo);

    // sin(hi + lo) = hi + (hi³ s(hi²) + lo); relative error 2^-26.7.
    let z = hi * hi;
    let s = f32::from_bits(0xb94b_c7c0);
    let s = s.mul_add(z, f32::from_bits(0x3c08_80de));
    let s = s.mul_add(z, f32::from_bits(0xbe2a_aa9b));
    let sin = hi + (hi * z).mul_add(s, lo);

    // cos(hi + lo) = 1 − z/2 + (z² c(z) − hi lo); error 2^-31.6. What 1 − z/2 rounds off is put back.
    let c = f32::from_bits(0x37cc_3667);
    let c = c.mul_add(z, f32::from_bits(0xbab6_0343));
    let c = c.mul_add(z, f32::from_bits(0x3d2a_aaa0));
    let half = 0.5 * z;
    let head = 1.0 - half;
    let tail = hi.mul_add(-lo, (1.0 - head) - half);
    let cos = head + (z * z).mul_add(c, tail);

    let odd = quadrant & 1 != 0;
    let (sin, cos) = (if odd { cos } else { sin }, if odd { sin } else { cos });
    let sin_sign = (quadrant & 2) << 30;
    let cos_sign = (quadrant.wrapping_add(1) & 2) << 30;
    (flush(f32::from_bits(sin.to_bits() ^ sin_sign)), flush(f32::from_bits(cos.to_bits() ^ cos_sign)))
}
