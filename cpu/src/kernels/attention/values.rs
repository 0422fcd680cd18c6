//! The third pass: weighted values, and their joining to the pages before. An element is one chain over the positions.

use llamay_plan::{KV_BLOCK, KV_PAGE};

use super::elements::{Block, Float, value_pair, value_scales};
use super::{Query, Scratch, Simd, TileArgs, for_each_group, span};
use crate::kernels::prefetch_ahead;
use crate::kv::quant_bytes;

/// # Safety
/// As for [`super::TileFn`], with values of type `E` at `v`.
#[inline(always)]
pub(super) unsafe fn of_floats<S: Simd, E: Float>(s: S, args: &TileArgs<'_>, v: *const u8, scratch: Scratch) {
    for_each_group!(args.queries, |group: [Q], first| {
        // SAFETY: passed on to the caller; the scratch has a row and factors for each query.
        unsafe { columns::<S, E, Q>(s, args, v, group, scratch.of(first)) }
    });
}

/// All values of `Q` queries.
#[inline(always)]
unsafe fn columns<S: Simd, E: Float, const Q: usize>(
    s: S,
    args: &TileArgs<'_>,
    v: *const u8,
    queries: &[Query; Q],
    scratch: Scratch,
) {
    let wide = Q <= 3 || S::REGISTERS >= 32;
    let mut d = 0;
    // SAFETY: `v_stride` is a whole number of vectors.
    unsafe {
        while d < args.v_stride {
            let left = args.v_stride - d;
            if Q == 1 && left >= 8 * S::LANES {
                products::<S, E, Q, 8>(s, args, v, queries, scratch, d);
                d += 8 * S::LANES;
            } else if wide && left >= 4 * S::LANES {
                products::<S, E, Q, 4>(s, args, v, queries, scratch, d);
                d += 4 * S::LANES;
            } else if left >= 2 * S::LANES {
                products::<S, E, Q, 2>(s, args, v, queries, scratch, d);
                d += 2 * S::LANES;
            } else {
                products::<S, E, Q, 1>(s, args, v, queries, scratch, d);
                d += S::LANES;
            }
        }
    }
}

/// Weighted values of `V` vectors of elements from `d` on.
#[inline(always)]
unsafe fn products<S: Simd, E: Float, const Q: usize, const V: usize>(
    s: S,
    args: &TileArgs<'_>,
    v: *const u8,
    queries: &[Query; Q],
    scratch: Scratch,
    d: usize,
) {
    // SAFETY: the span lies within the page and `V` vectors from `d` on within `v_stride`.
    unsafe {
        let mut acc = [[s.f_splat(0.0); V]; Q];
        for j in span(queries) {
            prefetch_ahead(s, v.wrapping_add((j * args.v_stride + d) * E::BYTES), V * S::LANES * E::BYTES);
            let v: [S::F; V] = std::array::from_fn(|i| E::load(s, v, j * args.v_stride + d + i * S::LANES));
            for (i, acc) in acc.iter_mut().enumerate() {
                let p = s.f_splat(*scratch.weights.add(i * KV_PAGE + j));
                for (acc, v) in acc.iter_mut().zip(v) {
                    *acc = s.f_fma(p, v, *acc);
                }
            }
        }
        for (i, acc) in acc.into_iter().enumerate() {
            for (v, acc) in acc.into_iter().enumerate() {
                join(s, args, &queries[i], scratch.of(i), d + v * S::LANES, acc);
            }
        }
    }
}

/// Joins the page's elements from `d` on to those of the pages before.
#[inline(always)]
unsafe fn join<S: Simd>(s: S, args: &TileArgs<'_>, query: &Query, scratch: Scratch, d: usize, page: S::F) {
    // SAFETY: the state has these elements, and the scratch the query's factors.
    unsafe {
        let state = args.out.add(query.out + d);
        let joined = if query.merge {
            let [a, b] = [s.f_splat(*scratch.factors[0]), s.f_splat(*scratch.factors[1])];
            s.f_fma(page, b, s.f_mul(s.f_load(state), a))
        } else {
            page
        };
        s.f_store(state, joined);
    }
}

/// # Safety
/// As for [`super::TileFn`], with values of type `B`.
#[inline(always)]
pub(super) unsafe fn of_blocks<S: Simd, B: Block>(s: S, args: &TileArgs<'_>, scratch: Scratch) {
    let n_blocks = args.v_stride / KV_BLOCK;
    for b in 0..n_blocks {
        // SAFETY: passed on to the caller; the scratch has a row and factors for each query.
        unsafe {
            let scales = value_scales::<S, B>(s, args.v, n_blocks, b);
            for_each_group!(args.queries, |group: [Q], first| {
                for c in (0..16).step_by(S::LANES) {
                    block_products::<S, B, Q>(s, args, group, scratch.of(first), &scales, b, c);
                }
            });
        }
    }
}

/// Weighted values of two vectors of block `b`: elements from `c` on, and from `16 + c` on.
#[inline(always)]
unsafe fn block_products<S: Simd, B: Block, const Q: usize>(
    s: S,
    args: &TileArgs<'_>,
    queries: &[Query; Q],
    scratch: Scratch,
    scales: &[f32; KV_PAGE],
    b: usize,
    c: usize,
) {
    let n_blocks = args.v_stride / KV_BLOCK;
    let bytes = quant_bytes(B::KIND) / KV_PAGE;
    // SAFETY: the span lies within the page, and the block within its positions.
    unsafe {
        let mut acc = [[s.f_splat(0.0); 2]; Q];
        for j in span(queries) {
            let v =
                value_pair::<S, B>(s, args.v.add((j * n_blocks + b) * bytes), c, *scales.get_unchecked(j));
            for (i, acc) in acc.iter_mut().enumerate() {
                let p = s.f_splat(*scratch.weights.add(i * KV_PAGE + j));
                for (acc, v) in acc.iter_mut().zip(v) {
                    *acc = s.f_fma(p, v, *acc);
                }
            }
        }
        for (i, [low, high]) in acc.into_iter().enumerate() {
            let d = b * KV_BLOCK + c;
            join(s, args, &queries[i], scratch.of(i), d, low);
            join(s, args, &queries[i], scratch.of(i), d + 16, high);
        }
    }
}
