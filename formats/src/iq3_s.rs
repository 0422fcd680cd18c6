//! IQ3_S: groups of four weights from a book of 512, signs free; scale per 32; `w = d * (2 * scale + 1) * grid * sign`.
//!
//! Layout (110 bytes): `d: f16`; 64 bytes, the low eight bits of an entry's number in [`IQ3_S_GRID`]; 8 bytes with the
//! ninth bit of each number; 32 bytes of signs, one bit a weight; 4 bytes with eight 4-bit scales. Lowest bits first.

use crate::grids::{IQ3_S_GRID, pair, signed};
use crate::{BlockFormat, Codes, Format, QuantizedBlock, f16_at};

/// The IQ3_S block format.
#[derive(Debug)]
pub struct IQ3_S;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 0));
    let (low, high, signs, scales) = (&block[2..66], &block[66..74], &block[74..106], &block[106..110]);
    for sub in 0..8 {
        codes.set_scale_32(sub, 2 * (scales[sub / 2] >> (4 * (sub % 2)) & 15) as i8 + 1);
    }
    let entry = |i: usize| {
        let ninth = usize::from(high[i / 8] >> (i % 8) & 1);
        IQ3_S_GRID[usize::from(low[i]) | ninth << 8]
    };
    for (group, &signs) in signs.iter().enumerate() {
        codes.set_group(group, signed(pair(entry(2 * group), entry(2 * group + 1)), signs));
    }
    codes
}

impl BlockFormat for IQ3_S {
    const FORMAT: Format = Format::IQ3_S;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}
