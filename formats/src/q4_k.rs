//! Q4_K: 256 weights of 4 bits; each 32 have a 6-bit scale and a 6-bit minimum; `w = d * scale * q - dmin * min`.
//!
//! Layout (144 bytes): `d: f16`, `dmin: f16`, 12 bytes of scales and minima ([`unpack_scales`]), 128 bytes of quants.
//! The quants lie in planes of 32: bytes `0..32` hold weights `0..32` in their low and `32..64` in their high nibbles.

use crate::{BlockEncoder, BlockFormat, Format, QuantizedBlock, dot_i8, f16_at, fit::fit_affine, planes};

/// The Q4_K block format.
#[derive(Debug)]
pub struct Q4_K;

/// The quants of a block: 0..=15.
#[inline(always)]
pub fn quants(block: &[u8]) -> [i8; 256] {
    let mut q = [0; 256];
    planes::unpack::<4>(&block[16..144], 32, &mut q);
    q
}

/// The scales and minima, 0..=63, one each for 32 weights, from the 12 bytes at `block[4..16]`. Q5_K shares them.
///
/// For `j < 4`, byte `j` holds scale `j` and byte `4 + j` minimum `j` in their low six bits; byte `8 + j` holds the low
/// four bits of scale and minimum `4 + j` as its low and high nibble, and their upper two bits are the upper two of
/// bytes `j` and `4 + j`.
#[inline(always)]
pub fn unpack_scales(bytes: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let (scale, min, low) = (bytes[j], bytes[4 + j], bytes[8 + j]);
        scales[j] = scale & 63;
        mins[j] = min & 63;
        scales[4 + j] = (low & 15) | (scale >> 6) << 4;
        mins[4 + j] = (low >> 4) | (min >> 6) << 4;
    }
    (scales, mins)
}

/// The inverse of [`unpack_scales`].
pub(crate) fn pack_scales(scales: &[u8], mins: &[u8], out: &mut [u8]) {
    for j in 0..4 {
        out[j] = scales[j] | (scales[4 + j] >> 4) << 6;
        out[4 + j] = mins[j] | (mins[4 + j] >> 4) << 6;
        out[8 + j] = (scales[4 + j] & 15) | (mins[4 + j] & 15) << 4;
    }
}

/// The super-block's `d` and `dmin`.
#[inline(always)]
pub fn super_scales(block: &[u8]) -> (f32, f32) {
    (f16_at(block, 0), f16_at(block, 2))
}

/// Decodes a block of Q4_K or Q5_K from its header and its unpacked quants.
pub(crate) fn decode_with(block: &[u8], q: &[i8; 256], out: &mut [f32]) {
    let (d, dmin) = super_scales(block);
    let (scales, mins) = unpack_scales(&block[4..16]);
    for (sub, (out, q)) in out.chunks_exact_mut(32).zip(q.chunks_exact(32)).enumerate() {
        let (scale, min) = (d * f32::from(scales[sub]), dmin * f32::from(mins[sub]));
        for (out, &q) in out.iter_mut().zip(q) {
            *out = scale * f32::from(q) - min;
        }
    }
}

/// The value of a block of Q4_K or Q5_K from its header and its unpacked quants.
#[inline(always)]
pub(crate) fn value_with(block: &[u8], q: &[i8; 256], x: QuantizedBlock<'_>) -> f32 {
    let (d, dmin) = super_scales(block);
    let (scales, mins) = unpack_scales(&block[4..16]);
    let (mut isum, mut msum) = (0, 0);
    for (sub, (q, a)) in q.chunks_exact(32).zip(x.quants.chunks_exact(32)).enumerate() {
        isum += i32::from(scales[sub]) * dot_i8(q, a);
        msum += i32::from(mins[sub]) * (i32::from(x.sums[2 * sub]) + i32::from(x.sums[2 * sub + 1]));
    }
    d.mul_add(isum as f32, -dmin * msum as f32)
}

impl BlockFormat for Q4_K {
    const FORMAT: Format = Format::Q4_K;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        decode_with(block, &quants(block), out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        value_with(block, &quants(block), x)
    }
}

fn encode(src: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let fit = fit_affine::<8>(src, importance, 15, 63);
    out[..2].copy_from_slice(&fit.d.to_le_bytes());
    out[2..4].copy_from_slice(&fit.dmin.to_le_bytes());
    pack_scales(&fit.scales, &fit.mins, &mut out[4..16]);
    planes::pack::<4>(&fit.quants, 32, &mut out[16..144]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_minima_come_back_from_twelve_bytes() {
        for shift in 0..64u8 {
            let scales: [u8; 8] = std::array::from_fn(|j| (j as u8 * 9 + shift) & 63);
            let mins: [u8; 8] = std::array::from_fn(|j| 63 - ((j as u8 * 5 + shift) & 63));
            let mut bytes = [0; 12];
            pack_scales(&scales, &mins, &mut bytes);
            assert_eq!(unpack_scales(&bytes), (scales, mins));
        }
    }
}
