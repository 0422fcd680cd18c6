//! The matrix product over packed formats with integer factors in a block of 256: Q2_K to Q6_K, and IQ4_XS, whose codes a
//! table turns into weights.

use llamay_formats::{iq4_nl, span_len};

use super::block::{less, unsigned};
use super::simd::{Simd, four};
use super::unpack::{BITS_2, BITS_3, BITS_4, BITS_5, BITS_6, unpack32, words32};
use super::{MatArgs, Tile, for_each_tile};

/// What sets one of these formats apart.
pub(crate) trait SuperKind {
    /// Bits of a weight.
    const BITS: u32;
    /// The largest unsigned weight.
    const MAX: i32;
    /// Weights of a factor: 16 or 32.
    const RUN: usize;
    /// Whether a run has an unsigned factor and a minimum; else it has a signed factor, and weights an offset.
    const MIN: bool;
    /// The offset's logarithm to base 2.
    const OFFSET_BITS: u32 = 0;
    /// What the codes stand for, with the offset; `None` where they are the weights.
    const TABLE: Option<&[u8; 16]> = None;
    /// Pairs of factors, and of minima behind them.
    const PAIRS: usize = 128 / Self::RUN * (1 + Self::MIN as usize);
}

macro_rules! kinds {
    ($($name:ident: $bits:expr, $run:literal, $min:literal, $offset_bits:literal;)*) => {
        $(
            pub(crate) struct $name;
            impl SuperKind for $name {
                const BITS: u32 = $bits;
                const MAX: i32 = (1 << $bits) - 1;
                const RUN: usize = $run;
                const MIN: bool = $min;
                const OFFSET_BITS: u32 = $offset_bits;
            }
        )*
    };
}

kinds! {
    Q2K: BITS_2, 16, true, 0;
    Q3K: BITS_3, 16, false, 2;
    Q4K: BITS_4, 32, true, 0;
    Q5K: BITS_5, 32, true, 0;
    Q6K: BITS_6, 16, false, 5;
}

pub(crate) struct Iq4Xs;

impl SuperKind for Iq4Xs {
    const BITS: u32 = BITS_4;
    const MAX: i32 = 113 + 128;
    const RUN: usize = 32;
    const MIN: bool = false;
    const OFFSET_BITS: u32 = 7;
    const TABLE: Option<&[u8; 16]> = Some(&unsigned(&iq4_nl::IQ4_VALUES, i8::MIN));
}

/// All columns of `args`, `COLS` at a time.
///
/// # Safety
/// As for [`super::MatFn`].
#[inline(always)]
pub(crate) unsafe fn matmul<S: Simd, K: SuperKind, const COLS: usize>(s: S, args: &MatArgs<'_>) {
    for_each_tile!(args, COLS, |tile| {
        // SAFETY: the tile lies within `args`; the rest is passed on to the caller.
        unsafe {
            if tile.n_cols == COLS {
                tile_product::<S, K, COLS>(s, args, tile);
            } else {
                tile_product::<S, K, 1>(s, args, tile);
            }
        }
    });
}

/// One group of rows times `C` columns.
#[inline(always)]
pub(super) unsafe fn tile_product<S: Simd, K: SuperKind, const C: usize>(
    s: S,
    args: &MatArgs<'_>,
    tile: Tile,
) {
    let lanes = S::LANES;
    let n_scales = 1 + usize::from(K::MIN);
    let layout = args.layout;
    let n_blocks = layout.n_blocks;
    let span = span_len(n_blocks);
    // SAFETY: the group has `n_blocks` blocks of scales, factors and quants, and each record as many blocks of 256.
    unsafe {
        let scales = args.weights.group(tile.group).cast::<u16>();
        let quants = args.weights.group(tile.group).add(args.weights.quants_at);
        let x: [*const u8; C] = std::array::from_fn(|c| args.record(tile.col + c));
        let mut spans = [[s.f_splat(0.0); C]; 8];
        let mut b = 0;
        for sums in &mut spans {
            let mut acc = [s.f_splat(0.0); C];
            for b in b..(b + span).min(n_blocks) {
                let block = quants.add(b * args.weights.block_bytes);
                if C == 1 {
                    super::prefetch_ahead(s, block, args.weights.block_bytes);
                }
                let (isum, msum) = integer_sums::<S, K, C>(s, block, &x, layout, b);
                let d = s.f_load_f16(scales.add(b * n_scales * lanes));
                for c in 0..C {
                    let t = if K::MIN {
                        let m = s.f_load_f16(scales.add((b * n_scales + 1) * lanes));
                        // -(m * msum), by the sign of the minimum.
                        let m = s.f_mul(m, s.f_splat(-1.0));
                        s.f_fma(d, s.f_from_i(isum[c]), s.f_mul(m, s.f_from_i(msum[c])))
                    } else {
                        let offset = match K::OFFSET_BITS {
                            2 => s.i_shl::<2>(msum[c]),
                            7 => s.i_shl::<7>(msum[c]),
                            _ => s.i_shl::<5>(msum[c]),
                        };
                        s.f_mul(d, s.f_from_i(s.i_sub(isum[c], offset)))
                    };
                    let scale = s.f_splat(*x[c].add(layout.scales).cast::<f32>().add(b));
                    acc[c] = s.f_fma(scale, t, acc[c]);
                }
            }
            b += span;
            *sums = acc;
        }
        args.store_sums(s, tile, &spans);
    }
}

/// The block's two exact sums for each column: factors times dot products, and what multiplies the activation sums
/// (minima where the format has them, else the factors again, for the offset).
#[inline(always)]
unsafe fn integer_sums<S: Simd, K: SuperKind, const C: usize>(
    s: S,
    block: *const u8,
    x: &[*const u8; C],
    layout: &super::ActLayout,
    b: usize,
) -> ([S::I; C], [S::I; C]) {
    let lanes = S::LANES;
    let sub_bytes = words32(K::BITS) * 4 * lanes;
    // SAFETY: a block is some vectors of pairs, then 8 runs of 32 weights for each row.
    unsafe {
        let weights = block.add(K::PAIRS * 2 * lanes);
        let mut isum = [s.i_splat(0); C];
        let mut msum = [s.i_splat(0); C];
        for half in 0..4 {
            let table = if S::SIGNED { const { &less(K::TABLE, 128) }.as_ref() } else { K::TABLE };
            if let Some(table) = table {
                let factors = s.pairs_i8(block.add(half * 2 * lanes));
                let sums_at = layout.more + 2 * (8 * b + 2 * half);
                for (sub, which) in [(2 * half, 1), (2 * half + 1, 1 << 16)] {
                    // One factor of the pair as a 32-bit number: the products of whole bytes do not fit 16 bits.
                    let factor = s.madd_pairs(s.i_splat(0), factors, s.i_splat(which));
                    let mut q = unpack32::<S>(s, K::BITS, weights.add(sub * sub_bytes));
                    for q in &mut q {
                        *q = s.lookup(table, *q);
                    }
                    for c in 0..C {
                        let a = x[c].add(256 * b + 32 * sub).cast();
                        let dot = s.dot32(&q, K::MAX, a, s.i_splat(0));
                        isum[c] = s.i_add(isum[c], s.i_mul(dot, factor));
                    }
                }
                for c in 0..C {
                    // Signed weights have no offset to take off.
                    if !S::SIGNED {
                        msum[c] = s.madd_pairs(msum[c], factors, s.i_splat(four(x[c].add(sums_at).cast())));
                    }
                }
            } else if K::RUN == 32 {
                let factors = s.pairs_u8(block.add(half * 2 * lanes));
                let first = s.scale_low(factors);
                let q = unpack32::<S>(s, K::BITS, weights.add(2 * half * sub_bytes));
                for c in 0..C {
                    let a = x[c].add(256 * b + 64 * half).cast();
                    isum[c] = s.dot_scaled::<0, 8>(&q, K::MAX, a, first, isum[c]);
                }
                let second = s.scale_high(factors);
                let q = unpack32::<S>(s, K::BITS, weights.add((2 * half + 1) * sub_bytes));
                let mins = s.pairs_u8(block.add((4 + half) * 2 * lanes));
                for c in 0..C {
                    let a = x[c].add(256 * b + 64 * half + 32).cast();
                    isum[c] = s.dot_scaled::<0, 8>(&q, K::MAX, a, second, isum[c]);
                    let sums = x[c].add(layout.more + 2 * (8 * b + 2 * half)).cast();
                    msum[c] = s.madd_pairs(msum[c], mins, s.i_splat(four(sums)));
                }
            } else {
                for sub in [2 * half, 2 * half + 1] {
                    let pairs = block.add(sub * 2 * lanes);
                    let factors = if K::MIN { s.pairs_u8(pairs) } else { s.pairs_i8(pairs) };
                    // What multiplies the sums: the minima, or the factors again, for the offset.
                    let of_sums = if K::MIN { s.pairs_u8(pairs.add(8 * 2 * lanes)) } else { factors };
                    let (first, second) = (s.scale_low(factors), s.scale_high(factors));
                    let q = unpack32::<S>(s, K::BITS, weights.add(sub * sub_bytes));
                    for c in 0..C {
                        let a: *const i8 = x[c].add(256 * b + 32 * sub).cast();
                        isum[c] = s.dot_scaled::<0, 4>(&q, K::MAX, a, first, isum[c]);
                        isum[c] = s.dot_scaled::<4, 4>(&q, K::MAX, a.add(16), second, isum[c]);
                        let sums = x[c].add(layout.sums + 2 * (16 * b + 2 * sub)).cast();
                        msum[c] = s.madd_pairs(msum[c], of_sums, s.i_splat(four(sums)));
                    }
                }
            }
        }
        (isum, msum)
    }
}
