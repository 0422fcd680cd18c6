//! TQ2_0: 256 ternary weights of 2 bits and one scale; `w = d * (q - 1)`.
//!
//! Layout (66 bytes): 64 bytes in planes of 32, four fields a byte; `d: f16`. A field of 3 decodes to 2.

use crate::tq1_0::ternary_quants;
use crate::{BlockEncoder, BlockFormat, Codes, Format, QuantizedBlock, array, f16_at, planes, put_f16};

/// The TQ2_0 block format.
#[derive(Debug)]
pub struct TQ2_0;

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 64));
    planes::unpack::<2>(&block[..64], 32, &mut codes.quants);
    codes.quants = array(|i| codes.quants[i] - 1);
    codes
}

impl BlockFormat for TQ2_0 {
    const FORMAT: Format = Format::TQ2_0;
    const ENCODER: Option<BlockEncoder> = Some(encode);

    fn decode(block: &[u8], out: &mut [f32]) {
        unpack(block).decode(out);
    }

    #[inline(always)]
    fn block_value(block: &[u8], x: QuantizedBlock<'_>) -> f32 {
        unpack(block).value(x)
    }
}

fn encode(src: &[f32], _: Option<&[f32]>, out: &mut [u8]) {
    let (d, q) = ternary_quants(src);
    planes::pack::<2>(&q, 32, &mut out[..64]);
    put_f16(out, 64, d);
}
