//! Activations in the form that the kernels read: one record a token, all records in one buffer.
//!
//! All that a block of weights meets stands together, so that a kernel needs one address a column: eight columns' addresses
//! fit the registers, those of eight columns' parts do not.

use llamay_formats::Activation;

/// A block of 32 quants in a record of kind `I8x32`, in bytes from its start: the quants, then 32-bit numbers.
pub(crate) mod block32 {
    /// The scale, a float.
    pub(crate) const SCALE: usize = 32;
    /// The sum of the quants, as a float.
    pub(crate) const SUM: usize = 36;
    /// -8, -16 and -128 times the sum, as integers.
    pub(crate) const NEGATIVES: usize = 40;
    /// From one block to the next.
    pub(crate) const BYTES: usize = 52;
}

/// A block of 256 quants in a record of kind `I8x256`, in bytes from its start: the quants, then a float and 16-bit numbers.
pub(crate) mod block256 {
    /// The scale.
    pub(crate) const SCALE: usize = 256;
    /// Sums over runs of 16.
    pub(crate) const SUMS_16: usize = 260;
    /// Sums over runs of 32.
    pub(crate) const SUMS_32: usize = 292;
    /// From one block to the next.
    pub(crate) const BYTES: usize = 308;
}

/// How long one token's record is: `k` floats for the kind `F32`, else blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActLayout {
    pub(crate) kind: Activation,
    pub(crate) k: usize,
    pub(crate) n_blocks: usize,
    /// 32-bit words of a record.
    pub(crate) words: usize,
}

impl ActLayout {
    /// The layout of rows of `k` elements, a multiple of the kind's block.
    pub(crate) fn new(kind: Activation, k: usize) -> ActLayout {
        let n_blocks = k / kind.block_len();
        let bytes = match kind {
            Activation::F32 => 4 * k,
            Activation::I8x32 => n_blocks * block32::BYTES,
            Activation::I8x256 => n_blocks * block256::BYTES,
        };
        ActLayout { kind, k, n_blocks, words: bytes / 4 }
    }
}
