//! The reference dot products: the one order of float operations that every kernel reproduces.
//!
//! See docs/arithmetic.md, "Floats have one order".

use crate::{BlockFormat, QuantizedRow};

/// Spans a row of blocks is cut into.
pub const SPANS: usize = 8;

/// Sums eight partial results as a balanced tree.
#[inline(always)]
pub fn tree8(s: [f32; 8]) -> f32 {
    ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
}

/// Blocks in every span but the last ones of a row of `n_blocks`.
#[inline(always)]
pub const fn span_len(n_blocks: usize) -> usize {
    n_blocks.div_ceil(SPANS)
}

/// Dot product of a weight row with an int8 activation row.
///
/// Each block gives one value `t` ([`BlockFormat::block_value`]) and the span's sum advances by
/// `acc = fma(activation scale, t, acc)`; the eight spans meet in [`tree8`]. A block of several units takes one such
/// step a unit, left to right ([`BlockFormat::unit_value`]); spans are cut between blocks all the same.
pub fn dot_blocks<F: BlockFormat>(row: &[u8], x: &QuantizedRow) -> f32 {
    let scale_len = const { F::FORMAT.activation().block_len() };
    let span = span_len(row.len() / F::BLOCK_BYTES);
    let mut spans = [0.0f32; SPANS];
    // A block of each span in turn, so that no sum waits for the one before it.
    for i in 0..span {
        for (s, acc) in spans.iter_mut().enumerate() {
            let at = s * span + i;
            let Some(block) = row.get(at * F::BLOCK_BYTES..(at + 1) * F::BLOCK_BYTES) else { break };
            for unit in 0..F::BLOCK_LEN / F::UNIT_LEN {
                let at = at * F::BLOCK_LEN + unit * F::UNIT_LEN;
                let t = F::unit_value(block, unit, x.block(at, F::UNIT_LEN));
                *acc = x.scales()[at / scale_len].mul_add(t, *acc);
            }
        }
    }
    tree8(spans)
}

/// Dot product of two float rows: element `i` goes to partial sum `i mod 8`, and the partials meet in [`tree8`].
pub fn dot_floats(w: impl Iterator<Item = f32>, x: &[f32]) -> f32 {
    let mut partial = [0.0f32; 8];
    for (i, (w, x)) in w.zip(x).enumerate() {
        partial[i % 8] = w.mul_add(*x, partial[i % 8]);
    }
    tree8(partial)
}
