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
use crate::kernels::simd::Simd;
use crate::kernels::unpack::unpack32;
use crate::kernels::{MatArgs, Tile, tree_f};

/// Pairs of columns of a wide and of a narrow tile.
const WIDE: usize = 8;
const NARROW: usize = 2;

/// Defines `matmul` by the module's `pairs_product` and, for columns that are left over, everybody's `tile_product`.
macro_rules! matmul_by_pairs {
    ($kind:ident) => {
        /// All columns of `args`, `COLS` at a time where there are as many.
        ///
        /// # Safety
        /// As for [`MatFn`]($crate::kernels::MatFn).
        #[inline(always)]
        pub(crate) unsafe fn matmul<S: Into<I8mm>, K: $kind, const COLS: usize>(s: S, args: &MatArgs<'_>) {
            use $crate::kernels::PANEL;
            use $crate::kernels::aarch64::smmla::{NARROW, WIDE};
            const { assert!(COLS == 2 * WIDE) }
            let s = s.into();
            for panel in (0..args.n_cols).step_by(PANEL) {
                let end = (panel + PANEL).min(args.n_cols);
                for group in args.groups.clone() {
                    let mut col = panel;
                    while col < end {
                        let n_cols = [COLS, 2 * NARROW].into_iter().find(|n| end - col >= *n).unwrap_or(1);
                        let tile = Tile { group, col, n_cols };
                        // SAFETY: the tile lies within `args`; the rest is passed on to the caller.
                        unsafe {
                            if n_cols == COLS {
                                pairs_product::<K, WIDE>(s, args, tile);
                            } else if n_cols == 2 * NARROW {
                                pairs_product::<K, NARROW>(s, args, tile);
                            } else {
                                tile_product::<I8mm, K, 1>(s, args, tile);
                            }
                        }
                        col += n_cols;
                    }
                }
            }
        }
    };
}
use matmul_by_pairs;

/// 32 weights of each row without their offset: from their planes, or by their codes from a table that has none.
///
/// # Safety
/// `words32(bits)` words of each row are readable at `p`.
#[inline(always)]
unsafe fn signed_weights(s: I8mm, bits: u32, offset: u8, table: Option<&[u8; 16]>, p: *const u8) -> Weights {
    // SAFETY: passed on to the caller.
    let mut q = unsafe { unpack32(s, bits, p) };
    for q in &mut q {
        *q = match table {
            Some(table) => s.lookup(table, *q),
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
        let sums: [Pairs<<I8mm as Simd>::F>; P] = std::array::from_fn(|p| {
            std::array::from_fn(|v| tree_f(s, std::array::from_fn(|i| spans[i][p][v])))
        });
        for (col, y) in (tile.col..).zip(sums.into_iter().flat_map(|sums| s.apart(sums))) {
            // SAFETY: passed on to the caller.
            unsafe { self.store(s, tile.group, col, y) };
        }
    }
}
