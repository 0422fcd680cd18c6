//! Q4_0: 32 weights of 4 bits and one half-precision scale; `w = d * (q - 8)`.
//!
//! Layout (18 bytes): `d: f16`, then 16 bytes; byte `i` holds weight `i` in its low and `i + 16` in its high nibble.

use crate::{BlockFormat, Format, QuantizedBlock, f16_at};

/// The Q4_0 block format.
#[derive(Debug)]
pub struct Q4_0;

impl BlockFormat for Q4_0 {
    const FORMAT: Format = Format::Q4_0;
    const BLOCK_LEN: usize = 32;
    const BLOCK_BYTES: usize = 18;

    fn decode(block: &[u8], out: &mut [f32]) {
        let d = f16_at(block, 0);
        for (i, q) in block[2..].iter().enumerate() {
            out[i] = d * f32::from((q & 15) as i8 - 8);
            out[i + 16] = d * f32::from((q >> 4) as i8 - 8);
        }
    }

    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        let mut sum = 0i32;
        for (i, q) in block[2..].iter().enumerate() {
            sum += (i32::from(q & 15) - 8) * i32::from(x.quants[i]);
            sum += (i32::from(q >> 4) - 8) * i32::from(x.quants[i + 16]);
        }
        f16_at(block, 0) * sum as f32
    }
}
