//! Q3_K: 256 weights of 3 bits; each 16 have a 6-bit signed scale; `w = d * (scale - 32) * (q - 4)`.
//!
//! Layout (110 bytes): 32 bytes with the third bits, 64 bytes with the low two bits, 12 bytes of scales, `d: f16`.
//! Third bits: weight `i` has bit `i / 32` of byte `i % 32`. Low bits: planes of 32, as in Q2_K. Scales: scale `j < 8`
//! has its low four bits in the low nibble of byte `j`, scale `8 + j` in the high nibble; the upper two bits of scale `j`
//! are bits `2 * (j / 4)` and the next of byte `8 + j % 4`.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, f16_at, fit::fit_symmetric, planes};

/// The Q3_K block format.
#[derive(Debug)]
pub struct Q3_K;

/// The quants of a block, offset removed: -4..=3.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let (mut q, mut high) = ([0; 256], [0; 256]);
    planes::unpack::<1>(&block[..32], 32, &mut high);
    planes::unpack::<2>(&block[32..96], 32, &mut q);
    for (q, high) in q.iter_mut().zip(high) {
        *q += (high << 2) - 4;
    }
    q
}

/// The scales, offset removed: -32..=31, one for 16 weights, from the 12 bytes at `block[96..108]`.
#[inline(always)]
pub fn unpack_scales(bytes: &[u8]) -> [i8; 16] {
    let (mut scales, mut high) = ([0; 16], [0; 16]);
    planes::unpack::<4>(&bytes[..8], 8, &mut scales);
    planes::unpack::<2>(&bytes[8..12], 4, &mut high);
    for (scale, high) in scales.iter_mut().zip(high) {
        *scale = (*scale | high << 4) - 32;
    }
    scales
}

/// The super-block's `d`.
#[inline(always)]
pub fn super_scale(block: &[u8]) -> f32 {
    f16_at(block, 108)
}

impl BlockFormat for Q3_K {
    const FORMAT: Format = Format::Q3_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = super_scale(block);
        let scales = unpack_scales(&block[96..108]);
        let q = quants(block);
        for (sub, (out, q)) in out.chunks_exact_mut(16).zip(q.chunks_exact(16)).enumerate() {
            let scale = d * f32::from(scales[sub]);
            for (out, &q) in out.iter_mut().zip(q) {
                *out = scale * f32::from(q);
            }
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        let scales = unpack_scales(&block[96..108]);
        let q = quants(block);
        let mut isum = 0;
        for (sub, (q, a)) in q.chunks_exact(16).zip(x.quants.chunks_exact(16)).enumerate() {
            isum += i32::from(scales[sub]) * dot_i8(q, a);
        }
        super_scale(block) * isum as f32
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let fit = fit_symmetric(src, importance, 4, 32);
    let scales = fit.scales.map(|s| (s + 32) as u8);
    planes::pack::<1>(&fit.quants.map(|q| q >> 2), 32, &mut out[..32]);
    planes::pack::<2>(&fit.quants, 32, &mut out[32..96]);
    planes::pack::<4>(&scales, 8, &mut out[96..104]);
    planes::pack::<2>(&scales.map(|s| s >> 4), 4, &mut out[104..108]);
    out[108..110].copy_from_slice(&fit.d.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_bits_lie_where_the_layout_says() {
        assert_eq!(unpack_scales(&[0; 12]), [-32; 16]);
        for j in 0..16 {
            let mut bytes = [0u8; 12];
            bytes[j % 8] = 0b1010 << (j / 8 * 4);
            bytes[8 + j % 4] = 0b10 << (j / 4 * 2);
            let mut expected = [-32; 16];
            expected[j] = 0b10_1010 - 32;
            assert_eq!(unpack_scales(&bytes), expected);
        }
    }
}
