//! IQ2_S: groups of eight weights from a book of 1024, signs free; scale per 16;
//! `w = d * (2 * scale + 1) / 8 * grid * sign`.
//!
//! Layout (82 bytes): `d: f16`; 32 bytes, the low eight bits of an entry's number in [`IQ2_S_GRID`]; 32 bytes of signs,
//! one bit a weight; 8 bytes with the upper two bits of each number, lowest first; 8 bytes with sixteen 4-bit scales.

use crate::grids::{IQ2_S_GRID, signed};
use crate::{BlockFormat, Codes, Format, QuantizedBlock, f16_at, iq2_xs::odd_scales};

/// The IQ2_S block format.
#[derive(Debug)]
pub struct IQ2_S;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0) * 0.125);
    codes.scales = odd_scales(&block[74..82]);
    let (low, signs, high) = (&block[2..34], &block[34..66], &block[66..74]);
    for group in 0..32 {
        let high = usize::from(high[group / 4] >> (2 * (group % 4)) & 3);
        let entry = usize::from(low[group]) | high << 8;
        codes.set_group(group, signed(IQ2_S_GRID[entry], signs[group]));
    }
    codes
}

impl BlockFormat for IQ2_S {
    const FORMAT: Format = Format::IQ2_S;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}
