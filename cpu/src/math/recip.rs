//! Reciprocals: the IEEE operations, and the same results for devices that lack them.

use super::flush;

/// 1/x, correctly rounded, with a subnormal result flushed to `+0` (|x| > 2¹²⁶).
#[inline(always)]
pub fn recip(x: f32) -> f32 {
    flush(1.0 / x)
}

/// 1/√x as two correctly rounded operations.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// [`recip`] from fma and integer operations alone, for a device whose division is not correctly rounded. Equal to
/// `recip` for every x but subnormal ones, which count as zero.
///
/// Newton's iteration brings y within an ulp of 1/m; the last step, from the exact residual 1 − m y, then rounds
/// correctly but for one mantissa (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000
/// processor"). A test over all 2²³ mantissas is the proof.
#[inline(always)]
pub fn recip_newton(x: f32) -> f32 {
    let bits = x.to_bits();
    let sign = bits & 0x8000_0000;
    let exponent = (bits >> 23) & 0xff;
    let mantissa = bits & 0x007f_ffff;

    // y ≈ 1/m in (1/2, 1] for the mantissa m in [1, 2). The line is within 1/17; each step squares that.
    let m = f32::from_bits(mantissa | 0x3f80_0000);
    let mut y = m.mul_add(-8.0 / 17.0, 24.0 / 17.0);
    for _ in 0..4 {
        let residual = (-m).mul_add(y, 1.0);
        y = residual.mul_add(y, y);
    }
    // The one mantissa the step cannot round: m = 2 − 2^-23, of which 1/m lies just past a midpoint.
    let y = if mantissa == 0x007f_ffff { f32::from_bits(0x3f00_0001) } else { y };

    // y / 2^(exponent − 127): an addition to the exponent, zero where that would leave the normal range.
    let scaled = y.to_bits().wrapping_add(127 << 23).wrapping_sub(exponent << 23);
    let normal = (y.to_bits() >> 23) + 127 > exponent;
    let magnitude = if normal { scaled | sign } else { 0 };
    let magnitude = if exponent == 0 { 0x7f80_0000 | sign } else { magnitude };
    let magnitude = if exponent == 0xff { 0 } else { magnitude };
    let nan = exponent == 0xff && mantissa != 0;
    f32::from_bits(if nan { bits } else { magnitude })
}

/// a/b, correctly rounded, from [`recip_newton`] and fma: the quotient is corrected once by its exact residual (Markstein).
/// For |a|, |b| and |a/b| in [2⁻¹⁰⁰, 2¹⁰⁰], where no intermediate value over- or underflows.
#[inline(always)]
pub fn div_newton(a: f32, b: f32) -> f32 {
    let y = recip_newton(b);
    let q = a * y;
    let residual = (-b).mul_add(q, a);
    residual.mul_add(y, q)
}
