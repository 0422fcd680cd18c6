//! Q8_K: 256 signed bytes, a single-precision scale and sums of 16; `w = d * q`.
//!
//! Layout (292 bytes): `d: f32`, 256 `i8`, then 16 `i16`, each the sum of 16 quants. The sums serve dot products in
//! which this block is the activation; here they are written and never read.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, encode::signed_max, round_even,
};

/// The Q8_K block format.
#[derive(Debug)]
pub struct Q8_K;

/// The scale of a block.
#[inline(always)]
pub fn scale(block: &[u8]) -> f32 {
    f32::from_le_bytes([block[0], block[1], block[2], block[3]])
}

/// Scales below this count as zero in dot products, 2^-29: with the least activation scale they give normal numbers.
pub const MIN_DOT_SCALE: f32 = f32::from_bits((127 - 29) << 23);

/// The scale of a block as a dot product sees it.
#[inline(always)]
pub fn dot_scale(block: &[u8]) -> f32 {
    let d = scale(block);
    if d.abs() < MIN_DOT_SCALE { 0.0 } else { d }
}

/// The quants of a block: -128..=127.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let bytes = &block[4..260];
    array(|i| bytes[i] as i8)
}

impl BlockFormat for Q8_K {
    const FORMAT: Format = Format::Q8_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = scale(block);
        for (out, q) in out.iter_mut().zip(quants(block)) {
            *out = d * f32::from(q);
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        dot_scale(block) * dot_i8(&quants(block), x.quants) as f32
    }
}

/// The weight of largest magnitude becomes -127, whichever its sign.
fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let d = signed_max(src) / -127.0;
    out[..4].copy_from_slice(&d.to_le_bytes());
    let (quants, sums) = out[4..].split_at_mut(256);
    for (q, x) in quants.iter_mut().zip(src) {
        *q = if d == 0.0 { 0 } else { round_even(x / d) as i8 as u8 };
    }
    for (sum, quants) in sums.chunks_exact_mut(2).zip(quants.chunks_exact(16)) {
        let total: i16 = quants.iter().map(|&q| i16::from(q as i8)).sum();
        sum.copy_from_slice(&total.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activation, MIN_AMAX, QuantizedRow, block_scale};

    fn encoded(weights: &[f32]) -> Vec<u8> {
        let mut block = vec![0; 292];
        encode(weights, None, &mut block);
        block
    }

    #[test]
    fn a_block_is_scale_quants_and_sums_of_sixteen() {
        let weights: Vec<f32> = (0..256).map(|i| (i as f32 - 128.0).max(-127.0) * 0.25).collect();
        let block = encoded(&weights);
        assert_eq!(scale(&block), 0.25);
        let q = quants(&block);
        assert_eq!(q.map(|q| f32::from(q) * 0.25).as_slice(), weights);
        for (sum, q) in block[260..].chunks(2).zip(q.chunks(16)) {
            assert_eq!(i16::from_le_bytes([sum[0], sum[1]]), q.iter().map(|&q| i16::from(q)).sum::<i16>());
        }
    }

    #[test]
    fn the_largest_magnitude_of_either_sign_keeps_its_value() {
        for peak in [127.0, -127.0] {
            let mut weights = [1.0; 256];
            weights[9] = peak;
            let mut decoded = [0.0; 256];
            Q8_K::decode(&encoded(&weights), &mut decoded);
            assert_eq!(decoded, weights);
        }
    }

    #[test]
    fn no_scale_leads_to_a_subnormal_product() {
        assert!((block_scale(MIN_AMAX) * MIN_DOT_SCALE).is_normal());
        let x = QuantizedRow::new(Activation::I8x256, &[1.0; 256]);
        let value = |weight: f32| Q8_K::block_value(&encoded(&[weight; 256]), x.block(0, 256));
        assert_eq!(value(MIN_DOT_SCALE), 0.0);
        assert!(value(MIN_DOT_SCALE * 128.0) > 0.0);
    }
}
