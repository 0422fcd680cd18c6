//! NVFP4: 64 weights as 4-bit floats (E2M1); each 16 have an 8-bit float (UE4M3, no sign) as scale; `w = scale * q`.
//!
//! Layout (36 bytes): 4 scales, then 32 bytes, eight for each 16 weights; byte `i` of eight holds weight `i` in its low
//! and `i + 8` in its high nibble. A scale covers 16 elements, so a block is four units. The float32 scale of the whole
//! tensor that the format was made for is no part of the block: a model file keeps it as a tensor of its own, and
//! without it the least scale, 2^-9, is too coarse for usual weights; hence no encoder here.

use crate::mxfp4::E2M1_DOUBLED;
use crate::{BlockFormat, Format, QuantizedBlock, array, dot_i8, planes};

/// The NVFP4 block format.
#[derive(Debug)]
pub struct NVFP4;

/// The doubled quants of unit `unit`, 16 of them: -12..=12.
#[inline(always)]
pub fn quants(block: &[u8], unit: usize) -> [i8; 16] {
    let mut q = [0; 16];
    planes::unpack::<4>(&block[4 + 8 * unit..12 + 8 * unit], 8, &mut q);
    array(|i| E2M1_DOUBLED[usize::from(q[i] as u8 & 15)])
}

/// Half of a unit's scale, which goes with the doubled quants. Four bits of exponent with bias 7, three of mantissa; the
/// NaN, 127, counts as zero and the top bit is ignored, as in the reference.
#[inline(always)]
pub fn half_scale(scale: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(scale >> 3 & 15), f32::from(scale & 7));
    if scale == 127 {
        0.0
    } else if exponent == 0 {
        mantissa * f32::from_bits((127 - 10) << 23)
    } else {
        (8.0 + mantissa) * f32::from_bits((127 + exponent - 11) << 23)
    }
}

impl BlockFormat for NVFP4 {
    const FORMAT: Format = Format::NVFP4;
    const UNIT_LEN: usize = 16;

    fn decode(block: &[u8], out: &mut [f32]) {
        for (unit, out) in out.chunks_exact_mut(Self::UNIT_LEN).enumerate() {
            let d = half_scale(block[unit]);
            for (out, q) in out.iter_mut().zip(quants(block, unit)) {
                *out = d * f32::from(q);
            }
        }
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        x.parts(Self::UNIT_LEN).enumerate().map(|(unit, x)| Self::unit_value(block, unit, x)).sum()
    }

    #[inline(always)]
    fn unit_value(block: &[u8], unit: usize, x: QuantizedBlock<'_>) -> f32 {
        half_scale(block[unit]) * dot_i8(&quants(block, unit), x.quants) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_the_unsigned_e4m3_numbers() {
        for (scale, value) in [(0x00, 0.0), (0x01, 1.0 / 512.0), (0x07, 7.0 / 512.0), (0x08, 1.0 / 64.0)] {
            assert_eq!(2.0 * half_scale(scale), value);
        }
        for (scale, value) in [(0x38, 1.0), (0x3c, 1.5), (0x7e, 448.0), (0x7f, 0.0), (0xb8, 1.0)] {
            assert_eq!(2.0 * half_scale(scale), value);
        }
    }
}
