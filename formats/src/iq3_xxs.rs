//! IQ3_XXS: groups of four weights from a book of 256, an even number of minus signs in eight; scale per 32;
//! `w = d * (2 * scale + 1) / 4 * grid * sign`.
//!
//! Layout (98 bytes): `d: f16`; 64 bytes, each the number of an entry of [`IQ3_XXS_GRID`]; eight times `u32` for 32
//! weights each: four 7-bit indices into [`EVEN_SIGNS`], lowest first, and above them a 4-bit scale.

use crate::grids::{EVEN_SIGNS, IQ3_XXS_GRID, pair, signed};
use crate::{BlockFormat, Codes, Format, QuantizedBlock, f16_at, u32_at};

/// The IQ3_XXS block format.
#[derive(Debug)]
pub struct IQ3_XXS;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0) * 0.25);
    for sub in 0..8 {
        let word = u32_at(block, 66 + 4 * sub);
        codes.set_scale_32(sub, (2 * (word >> 28) + 1) as i8);
        for i in 0..4 {
            let group = 4 * sub + i;
            let half = |k: usize| IQ3_XXS_GRID[usize::from(block[2 + 2 * group + k])];
            let signs = EVEN_SIGNS[(word >> (7 * i)) as usize & 127];
            codes.set_group(group, signed(pair(half(0), half(1)), signs));
        }
    }
    codes
}

impl BlockFormat for IQ3_XXS {
    const FORMAT: Format = Format::IQ3_XXS;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}
