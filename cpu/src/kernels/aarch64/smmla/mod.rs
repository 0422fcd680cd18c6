//! Matrix products by `smmla`, which multiplies 2 rows by 2 columns, 8 weights deep: 32 products an instruction, where `sdot`
//! has 16.
//!
//! A register of sums holds two rows of two columns. All that follows, factors, scales and chains, is lane by lane, so the sums stay
//! like that to the end of the row, and only the results are taken apart.
//!
//! Weights are packed as for `sdot`, a row a lane, since a single column (decoding) and the formats without a kernel here
//! read them so. Bringing 8 weights of a row side by side takes 16 `zip` for 32 weights of 8 rows. A tile has 16 columns to
//! share them and the unpacking among: that is 2 instructions a column, next to 8 `smmla` and 2 `zip` of its activations. The
//! tile's 32 registers of sums live in L1, behind loads and stores, which are not what these kernels are short of.
//!
//! With signed weights any offset is taken off when they are unpacked, so activation sums serve only formats with minima.

pub(crate) mod block;
pub(crate) mod superblock;

use super::I8mm;
use super::i8mm::{Pairs, Weights};
use crate::kernels::block::less;
use crate::kernels::simd::Simd;
use crate::kernels::unpack::unpack32;
use crate::kernels::{MatArgs, Tile, tree_f};

/// Pairs of columns of a wide and of a narrow tile.
const WIDE: usize = 8;
const NARROW: usize = 2;

/// Runs `$body` for each tile of a product, in the order of `for_each_tile`, but for three widths: `$P` is a tile's pairs of
/// columns, or 0 for a single column.
macro_rules! for_each_tile {
    ($args:ident, |$tile:ident, $P:ident| $body:expr) => {
        for panel in (0..$args.n_cols).step_by($crate::kernels::PANEL) {
            let end = (panel + $crate::kernels::PANEL).min($args.n_cols);
            for group in $args.groups.clone() {
                let mut col = panel;
                while col < end {
                    macro_rules! tile {
                        ($pairs:expr, $n_cols:expr) => {{
                            const $P: usize = $pairs;
                            let $tile = $crate::kernels::Tile { group, col, n_cols: $n_cols };
                            $body;
                            col += $n_cols;
                        }};
                    }
                    use $crate::kernels::aarch64::smmla::{NARROW, WIDE};
                    match end - col {
                        n if n >= 2 * WIDE => tile!(WIDE, 2 * WIDE),
                        n if n >= 2 * NARROW => tile!(NARROW, 2 * NARROW),
                        _ => tile!(0, 1),
                    }
                }
            }
        }
    };
}
use for_each_tile;

/// 32 weights of each row from their planes, or through a table of codes, without their offset.
///
/// # Safety
/// `words32(bits)` words of each row are readable at `p`.
#[inline(always)]
unsafe fn signed_weights(s: I8mm, bits: u32, offset: u8, table: Option<&[u8; 16]>, p: *const u8) -> Weights {
    // SAFETY: passed on to the caller.
    let mut q = unsafe { unpack32(s, bits, p) };
    for q in &mut q {
        *q = match table {
            Some(table) => s.lookup(&less(table, offset), *q),
            None if offset > 0 => s.less(*q, offset),
            None => *q,
        };
    }
    s.weights(&q)
}

impl MatArgs<'_> {
    /// The records of a tile's pairs of columns.
    #[inline(always)]
    fn record_pairs<const P: usize>(&self, tile: Tile) -> [[*const u8; 2]; P] {
        std::array::from_fn(|p| [0, 1].map(|i| self.record(tile.col + 2 * p + i)))
    }

    /// Stores the balanced sums of a tile's spans.
    ///
    /// # Safety
    /// As for [`MatFn`](crate::kernels::MatFn).
    #[inline(always)]
    unsafe fn store_pairs<const P: usize>(
        &self,
        s: I8mm,
        tile: Tile,
        spans: &[[Pairs<<I8mm as Simd>::F>; P]; 8],
    ) {
        for p in 0..P {
            let sums = [0, 1].map(|v| tree_f(s, std::array::from_fn(|i| spans[i][p][v])));
            for (i, y) in s.apart(sums).into_iter().enumerate() {
                // SAFETY: passed on to the caller.
                unsafe { self.store(s, tile.group, tile.col + 2 * p + i, y) };
            }
        }
    }
}
