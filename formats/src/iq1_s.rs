//! IQ1_S: groups of eight ternary weights from a book of 2048; per 32 a scale and a shift of an eighth, up or down;
//! `w = d * (2 * scale + 1) * (grid ± 1/8)`.
//!
//! Layout (50 bytes): `d: f16`; 32 bytes, the low eight bits of an entry's number in [`IQ1_GRID`]; eight times `u16` for
//! 32 weights each: the upper three bits of four numbers, lowest first, a 3-bit scale, and on top a bit that makes the
//! shift negative.

use crate::grids::IQ1_GRID;
use crate::{BlockFormat, Codes, Format, QuantizedBlock, array, f16_at, u16_at};

/// The IQ1_S block format.
#[derive(Debug)]
pub struct IQ1_S;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0) * 0.125);
    for sub in 0..8 {
        let word = u16_at(block, 34 + 2 * sub);
        codes.set_scale_32(sub, 2 * (word >> 12 & 7) as i8 + 1);
        for i in 0..4 {
            let entry = usize::from(block[2 + 4 * sub + i]) | usize::from(word >> (3 * i) & 7) << 8;
            codes.set_group(4 * sub + i, shifted(entry, word >> 15 != 0));
        }
    }
    codes
}

impl BlockFormat for IQ1_S {
    const FORMAT: Format = Format::IQ1_S;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}

/// An entry of the book in eighths, shifted by one of them. IQ1_M shares it.
#[inline(always)]
pub(crate) fn shifted(entry: usize, down: bool) -> [i8; 8] {
    let shift = if down { -1 } else { 1 };
    array(|i| 8 * IQ1_GRID[entry][i] + shift)
}
