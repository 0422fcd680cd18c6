//! IQ4_NL: 32 weights from a non-linear table of 16 and one half-precision scale; `w = d * IQ4_VALUES[q]`.
//!
//! Layout (18 bytes): `d: f16`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high nibble.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, encode::signed_max, f16_at, planes, put_f16,
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
    q.map(|q| IQ4_VALUES[q as usize])
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

    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        f16_at(block, 0) * dot_i8(&quants::<32>(&block[2..18]), x.quants) as f32
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let mut weights = [0.0; 32];
    error_weights(src, importance, &mut weights);
    put_f16(out, 0, best_scale(src, &weights));
    let codes: [u8; 32] = nearest_codes(src, f16_at(out, 0));
    planes::pack::<4>(&codes, 16, &mut out[2..18]);
}

/// How much the squared error of each weight counts.
///
/// Large weights count more: by their square, or where the columns' importance is known, by the gentler
/// `importance * sqrt(x^2 + 2 mean(x^2))`. All is relative to the largest weight, so that nothing underflows.
pub(crate) fn error_weights(src: &[f32], importance: Option<&[f32]>, weights: &mut [f32]) {
    let max = signed_max(src);
    let inverse = if max == 0.0 { 0.0 } else { 1.0 / max };
    for (w, x) in weights.iter_mut().zip(src) {
        *w = (x * inverse) * (x * inverse);
    }
    if let Some(importance) = importance.filter(|i| i.iter().any(|&i| i > 0.0)) {
        let spread = 2.0 * weights.iter().sum::<f32>() / weights.len() as f32;
        for (w, importance) in weights.iter_mut().zip(importance) {
            *w = importance * (*w + spread).sqrt();
        }
    }
}

/// A scale of little weighted squared error for `src` with the nearest codes.
///
/// The largest weight is taken to places around either end of the table; each time the codes are chosen, then the scale
/// that fits them best, which is `sum(w x q) / sum(w q^2)` and lowers the error by `sum(w x q)^2 / sum(w q^2)`.
pub(crate) fn best_scale(src: &[f32], weights: &[f32]) -> f32 {
    const TARGETS: [f32; 15] = [
        -141.0, -137.0, -133.0, -130.0, -127.0, -124.0, -121.0, -117.0, -113.0, -109.0, 106.0, 110.0, 113.0,
        117.0, 122.0,
    ];
    let max = signed_max(src);
    if max == 0.0 {
        return 0.0;
    }
    let (mut scale, mut gain) = (0.0, 0.0);
    for target in TARGETS {
        let (mut xq, mut qq) = (0.0f32, 0.0f32);
        for (&x, &w) in src.iter().zip(weights) {
            let x = x / max;
            let q = f32::from(IQ4_VALUES[usize::from(nearest_code(x * target))]);
            xq += w * x * q;
            qq += w * q * q;
        }
        if qq > 0.0 && xq * xq / qq > gain {
            (scale, gain) = (xq / qq * max, xq * xq / qq);
        }
    }
    scale
}

/// The nearest codes of `src` under a scale.
pub(crate) fn nearest_codes<const N: usize>(src: &[f32], scale: f32) -> [u8; N] {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    std::array::from_fn(|i| nearest_code(src[i] * inverse))
}

/// The code whose value is nearest to `x`.
#[inline(always)]
fn nearest_code(x: f32) -> u8 {
    let above = |pair: &[i8]| u8::from(2.0 * x > f32::from(i16::from(pair[0]) + i16::from(pair[1])));
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
