//! IQ1_M: as IQ1_S, with a scale per 16, a shift per 8, and no field for the super-block's scale;
//! `w = d * (2 * scale + 1) * (grid ± 1/8)`.
//!
//! Layout (56 bytes): 32 bytes, the low eight bits of an entry's number in the book; 16 bytes with a nibble for each of
//! these numbers, low nibble first: its upper three bits, then a bit that makes the shift negative; four times `u16`:
//! four 3-bit scales, lowest first, and on top four bits of `d`, an `f16` whose lowest bits come first.

use crate::{BlockFormat, Codes, Format, QuantizedBlock, array, iq1_s::shifted, u16_at};

/// The IQ1_M block format.
#[derive(Debug)]
pub struct IQ1_M;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let words: [u16; 4] = array(|i| u16_at(block, 48 + 2 * i));
    let bits = words.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12);
    let mut codes = Codes::new(half::f16::from_bits(bits).to_f32() * 0.125);
    codes.scales = array(|i| 2 * (words[i / 4] >> (3 * (i % 4)) & 7) as i8 + 1);
    for group in 0..32 {
        let high = block[32 + group / 2] >> (4 * (group % 2));
        let entry = usize::from(block[group]) | usize::from(high & 7) << 8;
        codes.set_group(group, shifted(entry, high & 8 != 0));
    }
    codes
}

impl BlockFormat for IQ1_M {
    const FORMAT: Format = Format::IQ1_M;

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}
