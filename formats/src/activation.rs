//! Activations as the weight formats see them: int8 blocks, quantised once per matmul input.

use crate::Activation;

/// Below this maximum a block of activations is taken as all zero, so that no subnormal reaches a result.
pub const MIN_AMAX: f32 = f32::from_bits((127 - 90) << 23); // 2^-90

/// Activation sums are kept per this many elements: the narrowest sub-block that has a minimum (Q2_K).
pub const SUM_LEN: usize = 16;

/// One activation row, quantised to int8 (see docs/arithmetic.md, "Activations").
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedRow {
    kind: Activation,
    /// One scale a block of `kind.block_len()` elements.
    scales: Vec<f32>,
    /// The signed bytes, in -127..=127.
    quants: Vec<i8>,
    /// Sums of `quants` over each run of [`SUM_LEN`].
    sums: Vec<i16>,
}

/// One block of a [`QuantizedRow`], or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedBlock<'a> {
    /// The signed bytes.
    pub quants: &'a [i8],
    /// Sums of `quants` over each run of [`SUM_LEN`].
    pub sums: &'a [i16],
}

impl<'a> QuantizedBlock<'a> {
    /// The block in parts of `len` elements, a multiple of [`SUM_LEN`].
    pub fn parts(self, len: usize) -> impl Iterator<Item = QuantizedBlock<'a>> {
        let sums = self.sums.chunks_exact(len / SUM_LEN);
        self.quants.chunks_exact(len).zip(sums).map(|(quants, sums)| QuantizedBlock { quants, sums })
    }

    /// Sum of all quants of the block.
    #[inline(always)]
    pub fn sum(&self) -> i32 {
        self.sums.iter().map(|&s| i32::from(s)).sum()
    }
}

/// The scale of one block: its largest magnitude over 127, or 0 for a block that counts as all zero.
pub fn block_scale(amax: f32) -> f32 {
    if amax < MIN_AMAX { 0.0 } else { amax * (1.0 / 127.0) }
}

/// 1.5 * 2^23: adding it to a magnitude below 2^22 leaves no fraction bits.
pub const ROUND_MAGIC: f32 = 12_582_912.0;

/// Rounds to the nearest integer, ties to even; exact for magnitudes below 2^22.
#[inline(always)]
pub fn round_even(x: f32) -> f32 {
    (x + ROUND_MAGIC) - ROUND_MAGIC
}

impl QuantizedRow {
    /// Quantises `x`, whose length is a multiple of the block.
    ///
    /// # Panics
    /// If `kind` is [`Activation::F32`] or the length is no multiple of its block.
    pub fn new(kind: Activation, x: &[f32]) -> QuantizedRow {
        assert!(kind != Activation::F32, "a float activation is not quantised");
        let len = kind.block_len();
        assert!(x.len().is_multiple_of(len), "{} elements are no whole number of blocks of {len}", x.len());
        let mut row = QuantizedRow {
            kind,
            scales: Vec::with_capacity(x.len() / len),
            quants: Vec::with_capacity(x.len()),
            sums: Vec::with_capacity(x.len() / SUM_LEN),
        };
        for block in x.chunks_exact(len) {
            // By bits, a NaN is the largest magnitude: it spoils the scale and so is never lost.
            let amax = f32::from_bits(block.iter().fold(0, |m, v| m.max(v.to_bits() & 0x7fff_ffff)));
            let scale = block_scale(amax);
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            row.scales.push(scale);
            row.quants.extend(block.iter().map(|v| round_even(v * inverse) as i8));
        }
        row.sums
            .extend(row.quants.chunks_exact(SUM_LEN).map(|q| q.iter().map(|&v| i16::from(v)).sum::<i16>()));
        row
    }

    /// The width class of the row.
    pub fn kind(&self) -> Activation {
        self.kind
    }

    /// Elements of the row.
    pub fn len(&self) -> usize {
        self.quants.len()
    }

    /// True for a row without elements.
    pub fn is_empty(&self) -> bool {
        self.quants.is_empty()
    }

    /// All scales, one a block.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// All signed bytes.
    pub fn quants(&self) -> &[i8] {
        &self.quants
    }

    /// All sums, one a run of [`SUM_LEN`].
    pub fn sums(&self) -> &[i16] {
        &self.sums
    }

    /// The scale that holds at element `at`.
    pub fn scale_at(&self, at: usize) -> f32 {
        self.scales[at / self.kind.block_len()]
    }

    /// The elements `at..at + len`; both are multiples of [`SUM_LEN`].
    pub fn block(&self, at: usize, len: usize) -> QuantizedBlock<'_> {
        QuantizedBlock {
            quants: &self.quants[at..at + len],
            sums: &self.sums[at / SUM_LEN..(at + len) / SUM_LEN],
        }
    }
}
