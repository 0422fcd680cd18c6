//! Q2_K: 256 weights of 2 bits; each 16 have a 4-bit scale and a 4-bit minimum; `w = d * scale * q - dmin * min`.
//!
//! Layout (84 bytes): 16 bytes with a scale in the low and a minimum in the high nibble, 64 bytes of quants, `d: f16`,
//! `dmin: f16`. The quants lie in planes of 32: bytes `0..32` hold weights `0..128`, two bits each, lowest first.

use crate::{
    BlockEncoder, BlockFormat, Format, QuantizedBlock, array, dot_i8, f16_at, fit::fit_affine, planes,
};

/// The Q2_K block format.
#[derive(Debug)]
pub struct Q2_K;

/// The quants of a block: 0..=3.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let mut q = [0; 256];
    planes::unpack::<2>(&block[16..80], 32, &mut q);
    q
}

/// The scales and minima, 0..=15, one each for 16 weights, from the 16 bytes at the start of a block.
#[inline(always)]
pub fn unpack_scales(bytes: &[u8]) -> ([u8; 16], [u8; 16]) {
    let bytes = &bytes[..16];
    (array(|i| bytes[i] & 15), array(|i| bytes[i] >> 4))
}

/// The super-block's `d` and `dmin`.
#[inline(always)]
pub fn super_scales(block: &[u8]) -> (f32, f32) {
    (f16_at(block, 80), f16_at(block, 82))
}

impl BlockFormat for Q2_K {
    const FORMAT: Format = Format::Q2_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        let (d, dmin) = super_scales(block);
        let (scales, mins) = unpack_scales(&block[..16]);
        let q = quants(block);
        for (sub, (out, q)) in out.chunks_exact_mut(16).zip(q.chunks_exact(16)).enumerate() {
            let (scale, min) = (d * f32::from(scales[sub]), dmin * f32::from(mins[sub]));
            for (out, &q) in out.iter_mut().zip(q) {
                *out = scale * f32::from(q) - min;
            }
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        let (d, dmin) = super_scales(block);
        let (scales, mins) = unpack_scales(&block[..16]);
        let q = quants(block);
        let (mut isum, mut msum) = (0, 0);
        for (sub, (q, a)) in q.chunks_exact(16).zip(x.quants.chunks_exact(16)).enumerate() {
            isum += i32::from(scales[sub]) * dot_i8(q, a);
            msum += i32::from(mins[sub]) * i32::from(x.sums[sub]);
        }
        d.mul_add(isum as f32, -dmin * msum as f32)
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let fit = fit_affine::<16>(src, importance, 3, 15);
    for (out, (scale, min)) in out.iter_mut().zip(fit.scales.iter().zip(fit.mins)) {
        *out = scale | min << 4;
    }
    planes::pack::<2>(&fit.quants, 32, &mut out[16..80]);
    out[80..82].copy_from_slice(&fit.d.to_le_bytes());
    out[82..84].copy_from_slice(&fit.dmin.to_le_bytes());
}
