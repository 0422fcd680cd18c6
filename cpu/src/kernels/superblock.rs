//! The matrix product over packed formats with integer factors in a block of 256: Q2_K to Q6_K, IQ4_XS, whose codes a
//! table turns into weights, and the ternary formats, which need no factors. `codebook.rs` brings the code books' blocks
//! into the same form.

use llamay_formats::{SPANS, iq4_nl, span_len};

use super::block::{less, unsigned};
use super::simd::{Simd, four};
use super::unpack::{BITS_2, BITS_3, BITS_4, BITS_5, BITS_6, unpack32, words32};
use super::{MatArgs, Spans, Tile, block256, matmul_by_tiles, opaque, unrolled};

/// What sets one of these formats apart.
pub(crate) trait SuperKind {
    /// Bits of a weight.
    const BITS: u32;
    /// The largest unsigned weight.
    const MAX: i32;
    /// Weights of a factor: 16 or 32; or 256, which have none.
    const RUN: usize;
    /// Whether a run has an unsigned factor and a minimum; else it has a signed factor, and weights an offset.
    const MIN: bool;
    /// What makes weights unsigned.
    const OFFSET: i32 = 0;
    /// Power of two that goes with the block's scale.
    const SCALE: f32 = 1.0;
    /// Whether factors take 16 bits; else they are bytes.
    const WIDE_FACTORS: bool = false;
    /// What the codes stand for, with the offset; `None` where they are the weights.
    const TABLE: Option<&[u8; 16]> = None;
    /// Pairs of factors, and of minima behind them.
    const PAIRS: usize = 128 / Self::RUN * (1 + Self::MIN as usize);
}

macro_rules! kinds {
    ($($name:ident: $bits:expr, $run:literal, $min:literal, $offset:literal;)*) => {
        $(
            pub(crate) struct $name;
            impl SuperKind for $name {
                const BITS: u32 = $bits;
                const MAX: i32 = (1 << $bits) - 1;
                const RUN: usize = $run;
                const MIN: bool = $min;
                const OFFSET: i32 = $offset;
            }
        )*
    };
}

kinds! {
    Q2K: BITS_2, 16, true, 0;
    Q3K: BITS_3, 16, false, 4;
    Q4K: BITS_4, 32, true, 0;
    Q5K: BITS_5, 32, true, 0;
    Q6K: BITS_6, 16, false, 32;
    Ternary: BITS_2, 256, false, 1;
}

pub(crate) struct Iq4Xs;

impl SuperKind for Iq4Xs {
    const BITS: u32 = BITS_4;
    const MAX: i32 = 113 + 128;
    const RUN: usize = 32;
    const MIN: bool = false;
    const OFFSET: i32 = 128;
    const TABLE: Option<&[u8; 16]> = Some(&unsigned(&iq4_nl::IQ4_VALUES, i8::MIN));
}

matmul_by_tiles!(SuperKind);

/// One group of rows times `C` columns.
#[inline(always)]
pub(super) unsafe fn tile_product<S: Simd, K: SuperKind, const C: usize>(
    s: S,
    args: &MatArgs<'_>,
    tile: Tile,
) {
    let lanes = S::LANES;
    let n_scales = 1 + usize::from(K::MIN);
    let n_blocks = args.layout.n_blocks;
    let span = span_len(n_blocks);
    // SAFETY: the group has `n_blocks` blocks of scales, factors and quants, and each record as many blocks of 256.
    unsafe {
        let scales = args.weights.group(tile.group).cast::<u16>();
        let quants = args.weights.group(tile.group).add(args.weights.quants_at);
        let x: [*const u8; C] = std::array::from_fn(|c| args.record(tile.col + c));
        let mut spans = Spans::<S, C>::new(s);
        let mut sums = [s.f_splat(0.0); C];
        for i in 0..SPANS {
            let mut acc = [s.f_splat(0.0); C];
            for b in i * span..((i + 1) * span).min(n_blocks) {
                let block = quants.add(b * args.weights.block_bytes);
                let scales = scales.add(b * n_scales * lanes);
                advance::<S, K, C>(s, scales, block, &x, b, &mut acc);
            }
            sums = spans.add(s, i, acc);
        }
        args.store_sums(s, tile, &sums);
    }
}

/// One step of each column's chain: adds block `b`, whose scales and quants begin at `scales` and `block`.
///
/// # Safety
/// The block is whole, and each record holds one of 256 at `b`.
#[inline(always)]
pub(super) unsafe fn advance<S: Simd, K: SuperKind, const C: usize>(
    s: S,
    scales: *const u16,
    block: *const u8,
    x: &[*const u8; C],
    b: usize,
    acc: &mut [S::F; C],
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let x: [*const u8; C] = std::array::from_fn(|c| x[c].add(b * block256::BYTES));
        let (isum, msum) = integer_sums::<S, K, C>(s, block, &x);
        let mut d = s.f_load_f16(scales);
        if K::SCALE != 1.0 {
            d = s.f_mul(d, s.f_splat(K::SCALE));
        }
        for c in 0..C {
            let t = if K::MIN {
                let m = s.f_load_f16(scales.add(S::LANES));
                // -(m * msum), by the sign of the minimum.
                let m = s.f_mul(m, s.f_splat(-1.0));
                s.f_fma(d, s.f_from_i(isum[c]), s.f_mul(m, s.f_from_i(msum[c])))
            } else {
                let offset = s.i_mul(msum[c], s.i_splat(K::OFFSET));
                s.f_mul(d, s.f_from_i(s.i_sub(isum[c], offset)))
            };
            let scale = s.f_splat(*x[c].add(block256::SCALE).cast::<f32>());
            acc[c] = s.f_fma(scale, t, acc[c]);
        }
    }
}

/// The block's two exact sums for each column, of which `x` points to the block: factors times dot products, and what
/// multiplies the activation sums (minima where the format has them, else the factors again, for the offset).
#[inline(always)]
unsafe fn integer_sums<S: Simd, K: SuperKind, const C: usize>(
    s: S,
    block: *const u8,
    x: &[*const u8; C],
) -> ([S::I; C], [S::I; C]) {
    let lanes = S::LANES;
    let sub_bytes = words32(K::BITS) * 4 * lanes;
    let pair_bytes = if K::WIDE_FACTORS { 4 } else { 2 };
    // SAFETY: a block is some vectors of pairs, then 8 runs of 32 weights for each row.
    unsafe {
        let weights = block.add(K::PAIRS * pair_bytes * lanes);
        let mut isum = [s.i_splat(0); C];
        // Where the quants of this step are.
        let mut x = *x;
        let table = if S::SIGNED { const { &less(K::TABLE, 128) }.as_ref() } else { K::TABLE };
        let step = if K::RUN == 32 && table.is_none() { 64 } else { 32 };
        for i in 0..256 / step {
            for x in &mut x {
                *x = opaque(*x);
            }
            let weights = weights.add(step / 32 * i * sub_bytes);
            // Not all of the block at once: there are some 16 places for lines on their way. Code books come from L1.
            let from_memory = C == 1 && !K::WIDE_FACTORS;
            if from_memory {
                super::prefetch_ahead(s, weights, sub_bytes);
                if i == 0 {
                    super::prefetch_ahead(s, block, K::PAIRS * pair_bytes * lanes);
                }
            }
            let mut q = unpack32::<S>(s, K::BITS, weights);
            if let Some(table) = table {
                // One factor of the pair as a 32-bit number: the products of whole bytes do not fit 16 bits.
                let factors = load_factors::<S, K>(s, block, i / 2);
                let factor = s.madd_pairs(s.i_splat(0), factors, s.i_splat(1 << (i % 2 * 16)));
                for q in &mut q {
                    *q = s.lookup(table, *q);
                }
                unrolled!(c, C, {
                    let dot = s.dot32(&q, K::MAX, x[c].cast(), s.i_splat(0));
                    isum[c] = s.i_add(isum[c], s.i_mul(dot, factor));
                });
            } else if K::RUN == 256 {
                unrolled!(c, C, {
                    // A chain of its own for every 32, so that one column alone does not wait for each product.
                    isum[c] = s.i_add(isum[c], s.dot32(&q, K::MAX, x[c].cast(), s.i_splat(0)));
                });
            } else {
                let factors = load_factors::<S, K>(s, block, i);
                let (first, second) = (s.scale_low(factors), s.scale_high(factors));
                if K::RUN == 32 {
                    unrolled!(c, C, {
                        isum[c] = s.dot_scaled::<0, 8>(&q, K::MAX, x[c].cast(), first, isum[c]);
                    });
                    if from_memory {
                        super::prefetch_ahead(s, weights.add(sub_bytes), sub_bytes);
                    }
                    let q = unpack32::<S>(s, K::BITS, weights.add(sub_bytes));
                    unrolled!(c, C, {
                        isum[c] = s.dot_scaled::<0, 8>(&q, K::MAX, x[c].add(32).cast(), second, isum[c]);
                    });
                } else {
                    unrolled!(c, C, {
                        isum[c] = s.dot_scaled::<0, 4>(&q, K::MAX, x[c].cast(), first, isum[c]);
                        isum[c] = s.dot_scaled::<4, 4>(&q, K::MAX, x[c].add(16).cast(), second, isum[c]);
                    });
                }
            }
            for x in &mut x {
                *x = x.add(step);
            }
        }
        let mut msum = [s.i_splat(0); C];
        if S::SIGNED && K::TABLE.is_some() {
            // Signed weights have no offset to take off.
            return (isum, msum);
        }
        let (pairs, sums) = if K::RUN == 16 { (8, block256::SUMS_16) } else { (4, block256::SUMS_32) };
        for i in 0..pairs {
            let factors = match K::RUN {
                256 => s.i_splat(1 << 16 | 1),
                _ if K::MIN => load_factors::<S, K>(s, block, pairs + i),
                _ => load_factors::<S, K>(s, block, i),
            };
            unrolled!(c, C, {
                let sums = four(x[c].sub(256).add(sums + 4 * i).cast());
                msum[c] = s.madd_pairs(msum[c], factors, s.i_splat(sums));
            });
        }
        (isum, msum)
    }
}

/// The block's pair `i` of factors, or of minima, for each row.
///
/// # Safety
/// The block holds as many pairs.
#[inline(always)]
unsafe fn load_factors<S: Simd, K: SuperKind>(s: S, block: *const u8, i: usize) -> S::I {
    // SAFETY: passed on to the caller.
    unsafe {
        if K::WIDE_FACTORS {
            s.i_load(block.add(i * 4 * S::LANES))
        } else if K::MIN {
            s.pairs_u8(block.add(i * 2 * S::LANES))
        } else {
            s.pairs_i8(block.add(i * 2 * S::LANES))
        }
    }
}
