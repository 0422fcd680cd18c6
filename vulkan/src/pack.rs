//! How a matrix's rows lie on the device: groups of eight rows, so that eight rows by eight spans are the lanes of a workgroup
//! and neighbouring lanes read neighbouring words.
//!
//! A row of n blocks is cut into spans of L = ⌈n/8⌉ blocks (docs/arithmetic.md); at step t of the chains as many spans are
//! busy as have a block t. Blocks are stored step by step; within a step, word by word; within a word, row by row and span by
//! span. No block is padded: what its bytes leave beside whole words goes to a plane of its own, and only the last group
//! is filled up, with zero bytes.
//!
//! Rows of plain formats lie as in the file, each filled up to whole words.

use std::borrow::Cow;

use llamay_formats::grids::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
use llamay_formats::{Activation, Format};

/// Rows of a group.
pub const ROWS: usize = 8;
/// Spans of a row.
const SPANS: usize = 8;

/// Where a block's bytes beside whole words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// There are none.
    None,
    /// The first ones.
    First(usize),
    /// The last ones.
    Last(usize),
}

impl Rest {
    /// Where the scale comes first it is what is left, and where it comes last too, so that quants are whole words.
    fn of(format: Format) -> Rest {
        match format {
            Format::Q4_0
            | Format::Q5_0
            | Format::Q8_0
            | Format::IQ4_NL
            | Format::Q1_0
            | Format::IQ1_S
            | Format::IQ2_XXS
            | Format::IQ2_XS
            | Format::IQ2_S
            | Format::IQ3_XXS
            | Format::IQ3_S => Rest::First(2),
            Format::MXFP4 => Rest::First(1),
            Format::Q3_K | Format::Q6_K | Format::TQ1_0 | Format::TQ2_0 => Rest::Last(2),
            Format::F32
            | Format::F16
            | Format::BF16
            | Format::F64
            | Format::I8
            | Format::I16
            | Format::I32
            | Format::I64
            | Format::Q4_1
            | Format::Q5_1
            | Format::Q8_1
            | Format::Q2_K
            | Format::Q4_K
            | Format::Q5_K
            | Format::Q8_K
            | Format::IQ1_M
            | Format::IQ4_XS
            | Format::NVFP4 => Rest::None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Rest::None => 0,
            Rest::First(n) | Rest::Last(n) => n,
        }
    }
}

/// The layout of matrices of a format with rows of a length.
#[derive(Clone, Debug)]
pub struct Layout {
    format: Format,
    /// Elements of a row.
    cols: usize,
    rest: Rest,
}

impl Layout {
    /// For rows of `cols` elements, a whole number of blocks.
    pub fn new(format: Format, cols: usize) -> Layout {
        Layout { format, cols, rest: Rest::of(format) }
    }

    /// Blocks of a row; of a plain format, elements.
    pub fn blocks(&self) -> usize {
        self.cols / self.format.block_len()
    }

    /// The format whose kernel multiplies these weights: integers and doubles become the nearest single-precision numbers.
    fn stored(&self) -> Format {
        match self.format {
            Format::F64 | Format::I8 | Format::I16 | Format::I32 | Format::I64 => Format::F32,
            format => format,
        }
    }

    /// Whole words of a block.
    fn block_words(&self) -> usize {
        self.format.block_bytes() / 4
    }

    /// Words of a plain row.
    fn row_words(&self) -> usize {
        (self.cols * self.stored().block_bytes()).div_ceil(4)
    }

    /// Words of a group of eight rows.
    pub fn group_words(&self) -> usize {
        ROWS * if self.format.is_plain() { self.row_words() } else { self.blocks() * self.block_words() }
    }

    /// Words of what a group's blocks leave.
    pub fn group_rest(&self) -> usize {
        ROWS * self.blocks() * self.rest.bytes() / 4
    }

    /// Elements that share a scale in the activations that these weights meet; `None` for floats.
    pub fn act_block(&self) -> Option<u32> {
        match self.format.activation() {
            Activation::F32 => None,
            Activation::I8x32 => Some(32),
            Activation::I8x256 => Some(256),
        }
    }

    /// The kernel's name; with `dot` the one that multiplies four bytes at once.
    pub fn kernel(&self, dot: bool) -> Cow<'static, str> {
        let name = self.stored().name().to_lowercase();
        let end = if dot && !self.format.is_plain() { "_dot" } else { "" };
        format!("matmul_{name}{end}").into()
    }

    /// Packs up to eight rows, as the file has them, into a group's words and rest, which are zeros before.
    pub fn pack_group(&self, rows: &[u8], words: &mut [u32], rest: &mut [u32]) {
        let Some(row_bytes) = self.format.row_bytes(self.cols).filter(|n| *n > 0) else { return };
        for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
            if self.format.is_plain() {
                let n = self.row_words();
                self.pack_plain(row, &mut words[r * n..(r + 1) * n]);
            } else {
                self.pack_row(r, row, words, rest);
            }
        }
    }

    fn pack_plain(&self, row: &[u8], words: &mut [u32]) {
        if self.stored() == self.format {
            for (word, bytes) in words.iter_mut().zip(row.chunks(4)) {
                let mut four = [0; 4];
                four[..bytes.len()].copy_from_slice(bytes);
                *word = u32::from_le_bytes(four);
            }
        } else {
            let mut values = vec![0.0; self.cols];
            self.format.decode(row, &mut values);
            words.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_bits());
        }
    }

    fn pack_row(&self, r: usize, row: &[u8], words: &mut [u32], rest: &mut [u32]) {
        let (n_words, n_blocks) = (self.block_words(), self.blocks());
        let length = n_blocks.div_ceil(SPANS);
        let (full, more) = (n_blocks / length, n_blocks % length);
        for (b, block) in row.chunks_exact(self.format.block_bytes()).enumerate() {
            let (span, t) = (b / length, b % length);
            let busy = full + usize::from(t < more);
            let before = (t * full + t.min(more)) * ROWS;
            let (left, whole) = match self.rest {
                Rest::None => (&[][..], block),
                Rest::First(n) => block.split_at(n),
                Rest::Last(n) => {
                    let (whole, left) = block.split_at(block.len() - n);
                    (left, whole)
                }
            };
            let first = before * n_words + r * busy + span;
            for (j, bytes) in whole.as_chunks().0.iter().enumerate() {
                words[first + j * ROWS * busy] = u32::from_le_bytes(*bytes);
            }
            let entry = before + r * busy + span;
            for (i, byte) in left.iter().enumerate() {
                let at = entry * left.len() + i;
                rest[at / 4] |= u32::from(*byte) << (8 * (at % 4));
            }
        }
    }
}

/// The code book of a format as its kernel reads it: each entry's bytes in order, four a word. `None` for formats without.
///
/// The ternary book's weights are eighths, 8 above what they stand for.
pub fn grid(format: Format) -> Option<Vec<u32>> {
    fn words<const N: usize>(entries: &[[u8; N]]) -> Option<Vec<u32>> {
        let words = entries.iter().flat_map(|e| e.as_chunks().0);
        Some(words.map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
    match format {
        Format::IQ1_S | Format::IQ1_M => {
            words(&IQ1_GRID.iter().map(|e| e.map(|v| (8 * v + 8) as u8)).collect::<Vec<_>>())
        }
        Format::IQ2_XXS => words(&IQ2_XXS_GRID),
        Format::IQ2_XS => words(&IQ2_XS_GRID),
        Format::IQ2_S => words(&IQ2_S_GRID),
        Format::IQ3_XXS => words(&IQ3_XXS_GRID),
        Format::IQ3_S => words(&IQ3_S_GRID),
        Format::F32
        | Format::F16
        | Format::BF16
        | Format::F64
        | Format::I8
        | Format::I16
        | Format::I32
        | Format::I64
        | Format::Q4_0
        | Format::Q4_1
        | Format::Q5_0
        | Format::Q5_1
        | Format::Q8_0
        | Format::Q8_1
        | Format::Q2_K
        | Format::Q3_K
        | Format::Q4_K
        | Format::Q5_K
        | Format::Q6_K
        | Format::Q8_K
        | Format::IQ4_NL
        | Format::IQ4_XS
        | Format::TQ1_0
        | Format::TQ2_0
        | Format::MXFP4
        | Format::NVFP4
        | Format::Q1_0 => None,
    }
}
