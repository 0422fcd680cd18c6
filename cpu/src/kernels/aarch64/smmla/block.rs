//! Formats whose block of 32 weights has one scale.

use llamay_formats::span_len;

use super::{matmul_by_pairs, signed_weights};
use crate::kernels::aarch64::I8mm;
pub(crate) use crate::kernels::block::*;
use crate::kernels::simd::Simd;
use crate::kernels::unpack::words32;
use crate::kernels::{MatArgs, Tile, block32};

matmul_by_pairs!(BlockKind);

/// What makes the kind's weights unsigned.
const fn offset_of<K: BlockKind>() -> u8 {
    match K::OFFSET {
        None => 0,
        Some(0) => 8,
        Some(1) => 16,
        Some(_) => 128,
    }
}

/// One group of rows times `P` pairs of columns.
#[inline(always)]
unsafe fn pairs_product<K: BlockKind, const P: usize>(s: I8mm, args: &MatArgs<'_>, tile: Tile) {
    let lanes = I8mm::LANES;
    let n_scales = 1 + usize::from(K::MIN);
    let offset = const { offset_of::<K>() };
    let table = const { &less(K::TABLE, offset_of::<K>()) }.as_ref();
    let block_bytes = const { words32(K::BITS) } * 4 * lanes;
    let layout = args.layout;
    let span = span_len(layout.n_blocks);
    // SAFETY: the group has `n_blocks` blocks of scales and quants, and each record as many blocks of 32.
    unsafe {
        let scales = args.weights.group(tile.group).cast::<u16>();
        let quants = args.weights.group(tile.group).add(args.weights.quants_at);
        let x = args.record_pairs::<P>(tile);
        let mut spans = [[[s.f_splat(0.0); 2]; P]; 8];
        let mut b = 0;
        for acc in &mut spans {
            for b in b..(b + span).min(layout.n_blocks) {
                let of_block = scales.add(b * n_scales * lanes);
                let d =
                    s.rows_f(if K::BF16_SCALE { s.f_load_bf16(of_block) } else { s.f_load_f16(of_block) });
                let m = if K::MIN { s.rows_f(s.f_load_f16(of_block.add(lanes))) } else { d };
                let w = signed_weights(s, K::BITS, offset, table, quants.add(b * block_bytes));
                for (x, acc) in x.iter().zip(acc.iter_mut()) {
                    let at = b * block32::BYTES;
                    let isum = s.dot::<0, 32>(&w, *x, at);
                    let scale = s.columns_f(*x, at + block32::SCALE);
                    for v in 0..2 {
                        let isum = s.f_from_i(isum[v]);
                        let t = if K::MIN {
                            let sum = s.columns_f(*x, at + block32::SUM);
                            s.f_fma(d[v], isum, s.f_mul(m[v], sum))
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
