//! Formats with integer factors in a block of 256.

use llamay_formats::span_len;

use super::{matmul_by_pairs, signed_weights};
use crate::kernels::aarch64::I8mm;
use crate::kernels::aarch64::i8mm::Pairs;
use crate::kernels::block::less;
use crate::kernels::simd::Simd;
pub(crate) use crate::kernels::superblock::*;
use crate::kernels::unpack::words32;
use crate::kernels::{MatArgs, Tile, block256};

matmul_by_pairs!(SuperKind);

/// Integer sums of a tile.
type Sums<const P: usize> = [Pairs<<I8mm as Simd>::I>; P];

/// One group of rows times `P` pairs of columns.
#[inline(always)]
unsafe fn pairs_product<K: SuperKind, const P: usize>(s: I8mm, args: &MatArgs<'_>, tile: Tile) {
    let lanes = I8mm::LANES;
    let n_scales = 1 + usize::from(K::MIN);
    let layout = args.layout;
    let span = span_len(layout.n_blocks);
    // SAFETY: the group has `n_blocks` blocks of scales, factors and quants, and each record as many blocks of 256.
    unsafe {
        let scales = args.weights.group(tile.group).cast::<u16>();
        let quants = args.weights.group(tile.group).add(args.weights.quants_at);
        let x = args.record_pairs::<P>(tile);
        let mut spans = [[[s.f_splat(0.0); 2]; P]; 8];
        let mut b = 0;
        for acc in &mut spans {
            for b in b..(b + span).min(layout.n_blocks) {
                let block = quants.add(b * args.weights.block_bytes);
                let (isum, msum) = integer_sums::<K, P>(s, block, &x, b);
                let of_block = scales.add(b * n_scales * lanes);
                let d = s.rows_f(s.f_load_f16(of_block));
                // Negative, by the sign of the minimum.
                let m = if K::MIN {
                    s.rows_f(s.f_mul(s.f_load_f16(of_block.add(lanes)), s.f_splat(-1.0)))
                } else {
                    d
                };
                for (p, acc) in acc.iter_mut().enumerate() {
                    let scale = s.columns_f(x[p], b * block256::BYTES + block256::SCALE);
                    for v in 0..2 {
                        let isum = s.f_from_i(isum[p][v]);
                        let t = if K::MIN {
                            s.f_fma(d[v], isum, s.f_mul(m[v], s.f_from_i(msum[p][v])))
                        } else {
                            s.f_mul(d[v], isum)
                        };
                        acc[v] = s.f_fma(scale, t, acc[v]);
                    }
                }
            }
            b += span;
        }
        args.store_pairs(s, tile, &spans);
    }
}

/// The block's two exact sums: factors times dot products, and minima times activation sums.
#[inline(always)]
unsafe fn integer_sums<K: SuperKind, const P: usize>(
    s: I8mm,
    block: *const u8,
    x: &[[*const u8; 2]; P],
    b: usize,
) -> (Sums<P>, Sums<P>) {
    let lanes = I8mm::LANES;
    let sub_bytes = const { words32(K::BITS) } * 4 * lanes;
    let offset = const { K::OFFSET as u8 };
    // SAFETY: a block is some vectors of pairs, then 8 runs of 32 weights for each row.
    unsafe {
        let weights = block.add(K::PAIRS * 2 * lanes);
        let pairs = |i: usize| {
            let p = block.add(i * 2 * lanes);
            if K::MIN { s.pairs_u8(p) } else { s.pairs_i8(p) }
        };
        // The one kind with a table has an offset of 128.
        let table = const { &less(K::TABLE, 128) }.as_ref();
        let mut isum = [[s.i_splat(0); 2]; P];
        let mut msum = isum;
        for sub in 0..8 {
            let w = signed_weights(s, K::BITS, offset, table, weights.add(sub * sub_bytes));
            let at = b * block256::BYTES + 32 * sub;
            if K::RUN == 256 {
                for (x, isum) in x.iter().zip(&mut isum) {
                    let dot = s.dot::<0, 32>(&w, *x, at);
                    for v in 0..2 {
                        isum[v] = s.i_add(isum[v], dot[v]);
                    }
                }
                continue;
            }
            // The pair of factors that these 32 weights have, or a half of it.
            let pair = if K::RUN == 32 { sub / 2 } else { sub };
            let factors = [s.rows(s.scale_low(pairs(pair))), s.rows(s.scale_high(pairs(pair)))];
            for (x, isum) in x.iter().zip(&mut isum) {
                if K::RUN == 32 {
                    add_scaled(s, isum, s.dot::<0, 32>(&w, *x, at), factors[sub % 2]);
                } else {
                    add_scaled(s, isum, s.dot::<0, 16>(&w, *x, at), factors[0]);
                    add_scaled(s, isum, s.dot::<16, 16>(&w, *x, at + 16), factors[1]);
                }
            }
            // A pair of minima, and where the pair of sums is that belongs to it.
            let (mins, sums) = if K::RUN == 32 {
                (4 + sub / 2, b * block256::BYTES + block256::SUMS_32 + 2 * sub)
            } else {
                (8 + sub, b * block256::BYTES + block256::SUMS_16 + 4 * sub)
            };
            if K::MIN && (K::RUN == 16 || sub % 2 == 0) {
                let mins = s.rows(pairs(mins));
                for (x, msum) in x.iter().zip(&mut msum) {
                    let sums = s.columns(*x, sums);
                    for v in 0..2 {
                        msum[v] = s.madd_pairs(msum[v], mins[v], sums);
                    }
                }
            }
        }
        (isum, msum)
    }
}

/// `acc += dot * factors`.
#[inline(always)]
fn add_scaled(
    s: I8mm,
    acc: &mut Pairs<<I8mm as Simd>::I>,
    dot: Pairs<<I8mm as Simd>::I>,
    factors: Pairs<<I8mm as Simd>::I>,
) {
    for v in 0..2 {
        acc[v] = s.i_add(acc[v], s.i_mul(dot[v], factors[v]));
    }
}
