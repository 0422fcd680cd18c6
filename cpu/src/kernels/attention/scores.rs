//! The first pass: products of queries with keys. A score is one chain over the head's elements, or over its blocks.

use llamay_formats::Activation;
use llamay_plan::{KV_BLOCK, KV_PAGE};

use super::elements::{Block, Float, scales_at};
use super::{Query, Scratch, Simd, TileArgs, for_each_group, span};
use crate::acts::{ActLayout, block32};
use crate::kernels::prefetch_ahead;
use crate::kv::quant_bytes;

/// # Safety
/// As for [`super::TileFn`], with keys of type `E` at `k`.
#[inline(always)]
pub(super) unsafe fn of_floats<S: Simd, E: Float>(s: S, args: &TileArgs<'_>, k: *const u8, scratch: Scratch) {
    for_each_group!(args.queries, |group: [Q], first| {
        // SAFETY: passed on to the caller; a row of the scratch for each query.
        unsafe { columns::<S, E, Q>(s, args, k, group, scratch.weights.add(first * KV_PAGE)) }
    });
}

/// The scores of `Q` queries at the positions that any of them sees.
#[inline(always)]
unsafe fn columns<S: Simd, E: Float, const Q: usize>(
    s: S,
    args: &TileArgs<'_>,
    k: *const u8,
    queries: &[Query; Q],
    out: *mut f32,
) {
    let seen = span(queries);
    // SAFETY: all columns lie within the page, since it is a whole number of each width.
    unsafe {
        // At least 8 chains at once, to hide the latency of a fused multiply-add, and no more than registers hold.
        if Q == 1 && S::LANES <= 8 {
            for j in (seen.start / (8 * S::LANES) * (8 * S::LANES)..seen.end).step_by(8 * S::LANES) {
                products::<S, E, Q, 8>(s, args, k, queries, out, j);
            }
        } else if Q <= 3 || S::REGISTERS >= 32 {
            for j in (seen.start / (4 * S::LANES) * (4 * S::LANES)..seen.end).step_by(4 * S::LANES) {
                products::<S, E, Q, 4>(s, args, k, queries, out, j);
            }
        } else {
            for j in (seen.start / (2 * S::LANES) * (2 * S::LANES)..seen.end).step_by(2 * S::LANES) {
                products::<S, E, Q, 2>(s, args, k, queries, out, j);
            }
        }
    }
}

/// Products of `Q` queries with the keys of `V` vectors of positions from `j` on.
#[inline(always)]
unsafe fn products<S: Simd, E: Float, const Q: usize, const V: usize>(
    s: S,
    args: &TileArgs<'_>,
    k: *const u8,
    queries: &[Query; Q],
    out: *mut f32,
    j: usize,
) {
    // SAFETY: `V` vectors from `j` on lie within the page.
    unsafe {
        let q: [*const f32; Q] = std::array::from_fn(|i| args.q.add(queries[i].q));
        let mut acc = [[s.f_splat(0.0); V]; Q];
        for d in 0..args.head_dim {
            // A page's elements come once from memory, and the values lie behind the keys.
            let row = k.wrapping_add((d * KV_PAGE + j) * E::BYTES);
            prefetch_ahead(s, row, V * S::LANES * E::BYTES);
            let k: [S::F; V] = std::array::from_fn(|v| E::load(s, k, d * KV_PAGE + j + v * S::LANES));
            for (acc, q) in acc.iter_mut().zip(q) {
                let q = s.f_splat(*q.add(d));
                for (acc, k) in acc.iter_mut().zip(k) {
                    *acc = s.f_fma(q, k, *acc);
                }
            }
        }
        for (i, acc) in acc.into_iter().enumerate() {
            for (v, acc) in acc.into_iter().enumerate() {
                s.f_store(out.add(i * KV_PAGE + j + v * S::LANES), acc);
            }
        }
    }
}

/// # Safety
/// As for [`super::TileFn`], with keys of type `B`.
#[inline(always)]
pub(super) unsafe fn of_blocks<S: Simd, B: Block>(s: S, args: &TileArgs<'_>, scratch: Scratch) {
    for_each_group!(args.queries, |group: [Q], first| {
        let seen = span(group);
        for j in (seen.start / S::LANES * S::LANES..seen.end).step_by(S::LANES) {
            // SAFETY: passed on to the caller; a row of the scratch for each query.
            unsafe { block_products::<S, B, Q>(s, args, group, scratch.weights.add(first * KV_PAGE), j) };
        }
    });
}

/// Products of `Q` queries with the keys of one vector of positions from `j` on.
#[inline(always)]
unsafe fn block_products<S: Simd, B: Block, const Q: usize>(
    s: S,
    args: &TileArgs<'_>,
    queries: &[Query; Q],
    out: *mut f32,
    j: usize,
) {
    let layout = ActLayout::new(Activation::I8x32, args.head_dim.next_multiple_of(KV_BLOCK));
    // SAFETY: a vector from `j` on lies within the page, and records have the layout.
    unsafe {
        let q: [*const u8; Q] = std::array::from_fn(|i| args.q.add(queries[i].q).cast());
        let scales = args.k.add(scales_at(B::KIND, layout.n_blocks)).cast::<u16>();
        let mut acc = [s.f_splat(0.0); Q];
        for b in 0..layout.n_blocks {
            let d = s.f_load_f16(scales.add(b * KV_PAGE + j));
            let block = args.k.add(b * quant_bytes(B::KIND) + 4 * j);
            for run in 0..quant_bytes(B::KIND) / (4 * KV_PAGE) {
                prefetch_ahead(s, block.wrapping_add(run * 4 * KV_PAGE), 4 * S::LANES);
            }
            let k = B::keys(s, block);
            let q = q.map(|q| q.add(b * block32::BYTES));
            let offsets = q.map(|q| *q.add(block32::NEGATIVES).cast::<i32>().add(B::OFFSET));
            let isums = B::dots(s, &k, q.map(|q| q.cast()), offsets);
            for ((acc, q), isum) in acc.iter_mut().zip(q).zip(isums) {
                let t = s.f_mul(d, s.f_from_i(isum));
                let scale = s.f_splat(*q.add(block32::SCALE).cast::<f32>());
                *acc = s.f_fma(scale, t, *acc);
            }
        }
        for (i, acc) in acc.into_iter().enumerate() {
            s.f_store(out.add(i * KV_PAGE + j), acc);
        }
    }
}
