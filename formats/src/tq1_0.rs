//! TQ1_0: 256 ternary weights, five to a byte, and one scale; `w = d * (q - 1)`.
//!
//! Layout (54 bytes): bytes `0..32` hold the weights `0..160`, bytes `32..48` the weights `160..240`, bytes `48..52` the
//! weights `240..256`, then `d: f16`. In a run of `n` bytes, byte `i` holds the weights `i`, `i + n`, `i + 2 n`, … of the
//! run as the digits of a number in base 3, the first digit the highest. The number is stored as a fraction of 256,
//! rounded up, so that the next digit is always the carry out of the byte when it is multiplied by three.

use crate::{BlockEncoder, BlockFormat, Codes, Format, QuantizedBlock, f16_at, put_f16};

/// The TQ1_0 block format.
#[derive(Debug)]
pub struct TQ1_0;

/// The runs of a block: the first byte, how many bytes, the first weight, how many weights a byte.
const RUNS: [(usize, usize, usize, usize); 3] = [(0, 32, 0, 5), (32, 16, 160, 5), (48, 4, 240, 4)];

/// The integers of a block.
#[inline(always)]
pub fn unpack(block: &[u8]) -> Codes {
    let mut codes = Codes::new(f16_at(block, 52));
    for (byte, n, weight, digits) in RUNS {
        for i in 0..n {
            let mut fraction = block[byte + i];
            for digit in 0..digits {
                let carried = u16::from(fraction) * 3;
                codes.quants[weight + digit * n + i] = (carried >> 8) as i8 - 1;
                fraction = carried as u8;
            }
        }
    }
    codes
}

impl BlockFormat for TQ1_0 {
    const FORMAT: Format = Format::TQ1_0;
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
    for (byte, n, weight, digits) in RUNS {
        for i in 0..n {
            // A run of four digits leaves the fifth, lowest one 0.
            let number = (0..5).fold(0u16, |number, digit| {
                3 * number + if digit < digits { u16::from(q[weight + digit * n + i]) } else { 0 }
            });
            out[byte + i] = (number * 256).div_ceil(243) as u8;
        }
    }
    put_f16(out, 52, d);
}

/// The scale, which is the largest magnitude, and the quants 0, 1, 2 of 256 weights. TQ2_0 shares them.
pub(crate) fn ternary_quants(src: &[f32]) -> (f32, [u8; 256]) {
    let d = src.iter().fold(0.0f32, |d, x| d.max(x.abs()));
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut q = [1; 256];
    for (q, x) in q.iter_mut().zip(src) {
        // Clamped, since the inverse of a subnormal maximum is infinite.
        *q = ((x * inverse).round().clamp(-1.0, 1.0) as i8 + 1) as u8;
    }
    (d, q)
}
