//! Q5_K: 256 weights of 5 bits; each 32 have a 6-bit scale and a 6-bit minimum; `w = d * scale * q - dmin * min`.
//!
//! Layout (176 bytes): `d: f16`, `dmin: f16`, 12 bytes of scales and minima as in Q4_K, 32 bytes with the fifth bits
//! (weight `i` has bit `i / 32` of byte `i % 32`), 128 bytes with the low four bits as in Q4_K.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, fit::fit_affine, planes, q4_k};

pub use crate::q4_k::{super_scales, unpack_scales};

/// The Q5_K block format.
#[derive(Debug)]
pub struct Q5_K;

/// The quants of a block: 0..=31.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let (mut q, mut high) = ([0; 256], [0; 256]);
    planes::unpack::<1>(&block[16..48], 32, &mut high);
    planes::unpack::<4>(&block[48..176], 32, &mut q);
    for (q, high) in q.iter_mut().zip(high) {
        *q |= high << 4;
    }
    q
}

impl BlockFormat for Q5_K {
    const FORMAT: Format = Format::Q5_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        q4_k::decode_with(block, &quants(block), out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        q4_k::value_with(block, &quants(block), x)
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let fit = fit_affine::<8>(src, importance, 31, 63);
    out[..2].copy_from_slice(&fit.d.to_le_bytes());
    out[2..4].copy_from_slice(&fit.dmin.to_le_bytes());
    q4_k::pack_scales(&fit.scales, &fit.mins, &mut out[4..16]);
    planes::pack::<1>(&fit.quants.map(|q| q >> 4), 32, &mut out[16..48]);
    planes::pack::<4>(&fit.quants, 32, &mut out[48..176]);
}
