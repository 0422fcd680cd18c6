//! IQ2_XS: groups of eight weights from a book of 512, with an even number of minus signs; scale per 16;
//! `w = d * (2 * scale + 1) / 8 * grid * sign`.
//!
//! Layout (74 bytes): `d: f16`; 32 times `u16` for eight weights each: nine bits number an entry of [`IQ2_XS_GRID`],
//! the upper seven index [`EVEN_SIGNS`]; 8 bytes with sixteen 4-bit scales, low nibble first.

use crate::grids::{EVEN_SIGNS, IQ2_XS_GRID, signed};
use crate::{BlockFormat, Codes, Format, QuantizedBlock, array, f16_at, u16_at};

/// The IQ2_XS block format.
#[derive(Debug)]
pub struct IQ2_XS;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0) * 0.125);
    codes.scales = odd_scales(&block[66..74]);
    for group in 0..32 {
        let word = usize::from(u16_at(block, 2 + 2 * group));
        codes.set_group(group, signed(IQ2_XS_GRID[word & 511], EVEN_SIGNS[word >> 9]));
    }
    codes
}

impl BlockFormat for IQ2_XS {
    const FORMAT: Format = Format::IQ2_XS;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}

/// Sixteen scales `2 * s + 1` from nibbles `s`, low nibble first. IQ2_S shares them.
#[inline(always)]
pub(crate) fn odd_scales(bytes: &[u8]) -> [i8; 16] {
    array(|i| 2 * (bytes[i / 2] >> (4 * (i % 2)) & 15) as i8 + 1)
}
