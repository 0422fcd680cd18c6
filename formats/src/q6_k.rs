//! Q6_K: 256 weights of 6 bits; each 16 have an 8-bit signed scale; `w = d * scale * (q - 32)`.
//!
//! Layout (210 bytes): 128 bytes with the low four bits, 64 bytes with the upper two, 16 `i8` scales, `d: f16`.
//! Low bits: planes of 64, two fields a byte. Upper bits: planes of 32, four fields a byte.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, f16_at, fit::fit_symmetric, planes,
};

/// The Q6_K block format.
#[derive(Debug)]
pub struct Q6_K;

/// The quants of a block, offset removed: -32..=31.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let (mut q, mut high) = ([0; 256], [0; 256]);
    planes::unpack::<4>(&block[..128], 64, &mut q);
    planes::unpack::<2>(&block[128..192], 32, &mut high);
    for (q, high) in q.iter_mut().zip(high) {
        *q = (*q | high << 4) - 32;
    }
    q
}

/// The scales, one for 16 weights, from the 16 bytes at `block[192..208]`.
#[inline(always)]
pub fn unpack_scales(bytes: &[u8]) -> [i8; 16] {
    let bytes = &bytes[..16];
    array(|i| bytes[i] as i8)
}

/// The super-block's `d`.
#[inline(always)]
pub fn super_scale(block: &[u8]) -> f32 {
    f16_at(block, 208)
}

impl BlockFormat for Q6_K {
    const FORMAT: Format = Format::Q6_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = super_scale(block);
        let scales = unpack_scales(&block[192..208]);
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
        let scales = unpack_scales(&block[192..208]);
        let q = quants(block);
        let mut isum = 0;
        for (sub, (q, a)) in q.chunks_exact(16).zip(x.quants.chunks_exact(16)).enumerate() {
            isum += i32::from(scales[sub]) * dot_i8(q, a);
        }
        super_scale(block) * isum as f32
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let fit = fit_symmetric(src, importance, 32, 128);
    planes::pack::<4>(&fit.quants, 64, &mut out[..128]);
    planes::pack::<2>(&fit.quants.map(|q| q >> 4), 32, &mut out[128..192]);
    out[192..208].copy_from_slice(&fit.scales.map(|s| s as u8));
    out[208..210].copy_from_slice(&fit.d.to_le_bytes());
}
