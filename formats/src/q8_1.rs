//! Q8_1: 32 signed bytes, a half-precision scale and the weights' sum; `w = d * q`.
//!
//! Layout (36 bytes): `d: f16`, `s: f16 = d * Σq`, then 32 `i8`. The sum serves dot products in which this block is the
//! activation; here it is written and never read. (Older descriptions give `d` and `s` as `f32` and 40 bytes.)

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, f16_at, put_f16,
};

/// The Q8_1 block format.
#[derive(Debug)]
pub struct Q8_1;

/// The quants of a block: -128..=127.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 32] {
    let bytes = &block[4..36];
    array(|i| bytes[i] as i8)
}

impl BlockFormat for Q8_1 {
    const FORMAT: Format = Format::Q8_1;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16_at(block, 0);
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        f16_at(block, 0) * dot_i8(&quants(block), x.quants) as f32
    }
}

fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src).abs() / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut sum = 0i32;
    for (out, x) in out[4..].iter_mut().zip(src) {
        let q = (x * inverse).round() as i8;
        sum += i32::from(q);
        *out = q as u8;
    }
    put_f16(out, 0, d);
    // The sum overflows half precision long before the scale does; nothing here depends on it.
    put_f16(out, 2, (d * sum as f32).clamp(-65504.0, 65504.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_scale_sum_and_quants() {
        let mut block = [0; 36];
        let weights: Vec<f32> = (0..32).map(|i| if i == 5 { -63.5 } else { i as f32 * 0.5 }).collect();
        encode(&weights, None, &mut block);
        let sum: f32 = weights.iter().sum();
        assert_eq!((f16_at(&block, 0), f16_at(&block, 2)), (0.5, sum));
        assert_eq!(block[4..].iter().map(|&q| f32::from(q as i8) * 0.5).collect::<Vec<_>>(), weights);
        let mut decoded = [0.0; 32];
        Q8_1::decode(&block, &mut decoded);
        assert_eq!(decoded.as_slice(), weights);
    }

    #[test]
    fn a_sum_beyond_half_precision_is_its_largest_number() {
        let mut block = [0; 36];
        encode(&[-40000.0; 32], None, &mut block);
        assert_eq!(f16_at(&block, 2), -65504.0);
    }
}
