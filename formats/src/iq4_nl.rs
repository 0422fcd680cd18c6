//! IQ4_NL: 32 weights from a non-linear table of 16 and one half-precision scale; `w = d * IQ4_VALUES[q]`.
//!
//! Layout (18 bytes): `d: f16`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high nibble.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, f16_at, planes,
    put_f16, tree8,
};

/// The IQ4_NL block format.
#[derive(Debug)]
pub struct IQ4_NL;

/// What the sixteen codes of IQ4_NL and IQ4_XS stand for: denser near zero, as weights are.
pub static IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The quants of `bytes`, two a byte in planes of 16, through the table.
#[inline(always)]
pub fn quants<const N: usize>(bytes: &[u8]) -> [i8; N] {
    let mut q = [0; N];
    planes::unpack::<4>(bytes, 16, &mut q);
    array(|i| IQ4_VALUES[usize::from(q[i] as u8 & 15)])
}

impl BlockFormat for IQ4_NL {
    const FORMAT: Format = Format::IQ4_NL;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16_at(block, 0);
        for (out, q) in out.iter_mut().zip(quants::<32>(&block[2..18])) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        f16_at(block, 0) * dot_i8(&quants::<32>(&block[2..18]), x.quants) as f32
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let mut weights = [0.0; 32];
    error_weights(src, importance, &mut weights);
    put_f16(out, 0, best_scale(src, &weights));
    planes::pack::<4>(&nearest_codes(src, f16_at(out, 0)), 16, &mut out[2..18]);
}

/// How much the squared error of each weight counts: `importance * sqrt(mean square + square)`, as for the K formats.
/// All is relative to the largest weight and the largest importance, so that nothing underflows.
pub(crate) fn error_weights(src: &[f32], importance: Option<&[f32]>, weights: &mut [f32]) {
    let max = signed_max(src);
    for (w, x) in weights.iter_mut().zip(src) {
        *w = if max == 0.0 { 0.0 } else { (x / max) * (x / max) };
    }
    let mean_square = weights.iter().sum::<f32>() / weights.len() as f32;
    for w in &mut *weights {
        *w = (mean_square + *w).sqrt();
    }
    if let Some(importance) = importance {
        let peak = signed_max(importance);
        for (w, importance) in weights.iter_mut().zip(importance) {
            *w *= if peak > 0.0 { importance / peak } else { 1.0 };
        }
    }
}

/// A scale of little weighted squared error for 32 weights with the nearest codes.
///
/// The largest weight is taken to places around either end of the table; each time the codes are chosen, then the scale
/// that fits them best, which is `sum(w x q) / sum(w q^2)` and lowers the error by `sum(w x q)^2 / sum(w q^2)`.
pub(crate) fn best_scale(src: &[f32], weights: &[f32]) -> f32 {
    let max = signed_max(src);
    if max == 0.0 {
        return 0.0;
    }
    let x: [f32; 32] = std::array::from_fn(|i| src[i] / max);
    let (mut scale, mut gain) = (0.0, 0.0);
    let mut consider = |inverse: f32| {
        let (mut xq, mut qq) = ([0.0f32; 8], [0.0f32; 8]);
        for (i, q) in nearest_values(&x, inverse).into_iter().enumerate() {
            xq[i % 8] += weights[i] * x[i] * q;
            qq[i % 8] += weights[i] * q * q;
        }
        let (xq, qq) = (tree8(xq), tree8(qq));
        if qq > 0.0 && xq * xq > gain * qq {
            (scale, gain) = (xq / qq, xq * xq / qq);
        }
        scale
    };
    for step in -5..=5 {
        consider(-127.0 + 4.0 * step as f32);
        consider(113.0 + 4.0 * step as f32);
    }
    let fitted = consider(-127.0);
    if fitted == 0.0 {
        return 0.0;
    }
    consider(1.0 / fitted) * max
}

/// The values nearest to `x * inverse`, walking up the table in all lanes at once.
#[inline(always)]
fn nearest_values(x: &[f32; 32], inverse: f32) -> [f32; 32] {
    let mut values = [f32::from(IQ4_VALUES[0]); 32];
    for pair in IQ4_VALUES.windows(2) {
        let (low, high) = (f32::from(pair[0]), f32::from(pair[1]));
        let middle = 0.5 * (low + high);
        for (value, x) in values.iter_mut().zip(x) {
            *value = if x * inverse > middle { high } else { *value };
        }
    }
    values
}

/// The nearest codes of 32 weights under a scale.
pub(crate) fn nearest_codes(src: &[f32], scale: f32) -> [u8; 32] {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    std::array::from_fn(|i| nearest_code(src[i] * inverse))
}

/// The code whose value is nearest to `x`.
#[inline(always)]
fn nearest_code(x: f32) -> u8 {
    let above = |pair: &[i8]| u8::from(2.0 * x > f32::from(pair[0]) + f32::from(pair[1]));
    IQ4_VALUES.windows(2).map(above).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_code_is_no_farther_than_any_other() {
        for x in (-1500..1500).map(|x| x as f32 / 10.0) {
            let error = |code: u8| (f32::from(IQ4_VALUES[usize::from(code)]) - x).abs();
            assert!((0..16).all(|other| error(nearest_code(x)) <= error(other)), "{x}");
        }
    }
}
