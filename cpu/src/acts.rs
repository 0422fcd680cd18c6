//! Activations in the form that the kernels read: one record a token, all records in one buffer.

use llamay_formats::{Activation, SUM_LEN};

/// Where the parts of one token's record are, in bytes from its start. A record is a whole number of 32-bit words.
///
/// | kind | parts |
/// |---|---|
/// | `F32` | `x`: k floats |
/// | `I8x32` | quants: k bytes; then for each block of 32 a scale, the sum of its quants as a float, and -8, -16 and -128 times that sum as integers |
/// | `I8x256` | quants: k bytes; a scale for each block of 256; 16-bit sums over runs of 16, then over runs of 32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActLayout {
    pub(crate) kind: Activation,
    pub(crate) k: usize,
    pub(crate) n_blocks: usize,
    pub(crate) scales: usize,
    /// `I8x32`: float sums. `I8x256`: 16-bit sums over runs of 16.
    pub(crate) sums: usize,
    /// `I8x32`: negative multiples of the sums. `I8x256`: 16-bit sums over runs of 32.
    pub(crate) more: usize,
    /// Words of a record.
    pub(crate) words: usize,
}

impl ActLayout {
    /// The layout of rows of `k` elements, a multiple of the kind's block.
    pub(crate) fn new(kind: Activation, k: usize) -> ActLayout {
        let n_blocks = k / kind.block_len();
        let scales = k;
        let (sums, more, bytes) = match kind {
            Activation::F32 => (0, 0, 4 * k),
            Activation::I8x32 => {
                let sums = scales + 4 * n_blocks;
                let more = sums + 4 * n_blocks;
                (sums, more, more + 3 * 4 * n_blocks)
            }
            Activation::I8x256 => {
                let sums = scales + 4 * n_blocks;
                let more = sums + 2 * (k / SUM_LEN);
                (sums, more, more + 2 * (k / 32))
            }
        };
        ActLayout { kind, k, n_blocks, scales, sums, more, words: bytes / 4 }
    }

    /// Byte offset of -8 (`which` = 0), -16 (1) or -128 (2) times the sums of an `I8x32` record.
    pub(crate) const fn negatives(&self, which: usize) -> usize {
        self.more + which * 4 * self.n_blocks
    }
}
