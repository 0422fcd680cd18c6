//! IQ2_XXS: groups of eight weights from a book of 256, with an even number of minus signs; scale per 32;
//! `w = d * (2 * scale + 1) / 8 * grid * sign`.
//!
//! Layout (66 bytes): `d: f16`, then eight times, for 32 weights each: four bytes, each the number of an entry of
//! [`IQ2_XXS_GRID`]; a `u32` with four 7-bit indices into [`EVEN_SIGNS`], lowest first, and above them a 4-bit scale.

use crate::grids::{EVEN_SIGNS, IQ2_XXS_GRID, signed};
use crate::{BlockFormat, Codes, Format, QuantizedBlock, f16_at, u32_at};

/// The IQ2_XXS block format.
#[derive(Debug)]
pub struct IQ2_XXS;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0) * 0.125);
    for (sub, bytes) in block[2..].chunks_exact(8).enumerate() {
        let word = u32_at(bytes, 4);
        codes.set_scale_32(sub, (2 * (word >> 28) + 1) as i8);
        for (i, &entry) in bytes[..4].iter().enumerate() {
            let signs = EVEN_SIGNS[(word >> (7 * i)) as usize & 127];
            codes.set_group(4 * sub + i, signed(IQ2_XXS_GRID[usize::from(entry)], signs));
        }
    }
    codes
}

impl BlockFormat for IQ2_XXS {
    const FORMAT: Format = Format::IQ2_XXS;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}
