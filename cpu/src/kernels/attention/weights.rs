//! The second pass: scores become weights, and the factors by which a page joins the pages before it.

use std::ops::Range;

use llamay_plan::KV_PAGE;

use super::{MergeArgs, Query, Scratch, Simd, TileArgs};
use crate::kernels::elementwise::softcap;
use crate::math::{EXP_MIN, EXPM1, LN2_HI, LN2_LO, LOG2_E, ROUND};

/// The numbers of a page's positions, to be compared with what a query sees.
static POSITIONS: [f32; KV_PAGE] = {
    let mut positions = [0.0; KV_PAGE];
    let mut j = 0;
    while j < KV_PAGE {
        positions[j] = j as f32;
        j += 1;
    }
    positions
};

/// [`crate::math::exp`] of a number that is not above 0, or NaN.
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let constant = |c| s.f_splat(c);
    let t = s.f_fma(x, constant(LOG2_E), constant(ROUND));
    let k = s.f_add(t, constant(-ROUND));
    let r = s.f_fma(k, constant(-LN2_HI), x);
    let r = s.f_fma(k, constant(-LN2_LO), r);
    let q = s.f_fma(constant(EXPM1[0]), r, constant(EXPM1[1]));
    let q = s.f_fma(q, r, constant(EXPM1[2]));
    let q = s.f_fma(q, r, constant(EXPM1[3]));
    let q = s.f_fma(q, r, constant(EXPM1[4]));
    let p = s.f_fma(s.f_mul(r, r), q, r);
    // The low bits of ROUND are zero, so those of `t` are the power of two.
    let y = s.f_add_exponent(s.f_add(constant(1.0), p), t);
    let y = s.f_select_lt(x, constant(EXP_MIN), constant(0.0), y);
    s.f_select_lt(x, constant(f32::MAX), y, x)
}

/// Turns all scores into weights `exp(score - maximum)`, 0 where a query does not see; works out by which factors the page
/// joins each state, and stores the states' maxima and sums.
///
/// # Safety
/// As for [`super::TileFn`].
#[inline(always)]
pub(super) unsafe fn weights<S: Simd>(s: S, args: &TileArgs<'_>, scratch: Scratch) {
    let n = args.queries.len();
    // SAFETY: the state of each query, and rows and factors of the scratch.
    unsafe {
        let [before, page, sums, sums_before] = scratch.factors;
        for (i, query) in args.queries.iter().enumerate() {
            let (m, l) = weights_of(s, args, query, scratch.weights.add(i * KV_PAGE));
            let state = args.out.add(query.out + args.v_stride);
            // Joined to nothing, the page keeps its sum: both factors are 1.
            let (m_before, l_before) = if query.merge { (*state, *state.add(1)) } else { (m, 0.0) };
            (*page.add(i), *before.add(i)) = (m, m_before);
            (*sums.add(i), *sums_before.add(i)) = (l, l_before);
            *state = if m > m_before { m } else { m_before };
        }
        for i in (0..n).step_by(S::LANES) {
            let [a, b] = factors(s, s.f_load(before.add(i)), s.f_load(page.add(i)));
            let l_before = s.f_mul(s.f_load(sums_before.add(i)), a);
            s.f_store(sums.add(i), s.f_fma(s.f_load(sums.add(i)), b, l_before));
            s.f_store(before.add(i), a);
            s.f_store(page.add(i), b);
        }
        for (i, query) in args.queries.iter().enumerate() {
            *args.out.add(query.out + args.v_stride + 1) = *sums.add(i);
        }
    }
}

/// The factors by which two parts are joined, from their maxima: of the one before, and of the one that joins it.
#[inline(always)]
fn factors<S: Simd>(s: S, before: S::F, page: S::F) -> [S::F; 2] {
    // Negated, to be added.
    let m = s.f_mul(s.f_max(page, before), s.f_splat(-1.0));
    [exp(s, s.f_add(before, m)), exp(s, s.f_add(page, m))]
}

/// Turns a row of products into weights; returns the maximum and the sum.
#[inline(always)]
unsafe fn weights_of<S: Simd>(s: S, args: &TileArgs<'_>, query: &Query, row: *mut f32) -> (f32, f32) {
    let mut scale = args.scale;
    // SAFETY: a row has a float for each position.
    unsafe {
        if let Some(cap) = args.softcap {
            let row = std::slice::from_raw_parts_mut(row, KV_PAGE);
            row.iter_mut().for_each(|v| *v *= scale);
            softcap(row, cap);
            scale = 1.0;
        }
        // Most queries see all of most pages, and need not ask.
        if query.lo == 0 && query.hi == KV_PAGE {
            softmax::<S, true>(s, row, scale, 0..KV_PAGE)
        } else {
            softmax::<S, false>(s, row, scale, query.lo..query.hi)
        }
    }
}

/// Scores times `scale` to weights. With `ALL` every position is seen.
#[inline(always)]
unsafe fn softmax<S: Simd, const ALL: bool>(
    s: S,
    row: *mut f32,
    scale: f32,
    seen: Range<usize>,
) -> (f32, f32) {
    let n = KV_PAGE / S::LANES;
    let lanes = |i: usize| i * S::LANES..(i + 1) * S::LANES;
    let some = |at: Range<usize>| ALL || (at.start < seen.end && at.end > seen.start);
    let all = |at: Range<usize>| ALL || (at.start >= seen.start && at.end <= seen.end);
    let none = s.f_splat(f32::NEG_INFINITY);
    let mut x = [s.f_splat(0.0); KV_PAGE / 4];
    let mut max = none;
    // SAFETY: a row has a float for each position.
    unsafe {
        for (i, x) in x[..n].iter_mut().enumerate().filter(|(i, _)| some(lanes(*i))) {
            let at = lanes(i).start;
            *x = s.f_mul(s.f_load(row.add(at)), s.f_splat(scale));
            if !all(lanes(i)) {
                let position = s.f_load(POSITIONS.as_ptr().add(at));
                *x = s.f_select_lt(position, s.f_splat(seen.start as f32), none, *x);
                *x = s.f_select_lt(position, s.f_splat(seen.end as f32), *x, none);
            }
            max = s.f_max(*x, max);
        }
        // Of two zeros the positive, whatever the order.
        let m = s.f_max_of_lanes(max) + 0.0;
        let minus = s.f_splat(-m);
        for (i, x) in x[..n].iter_mut().enumerate() {
            if some(lanes(i)) {
                *x = exp(s, s.f_add(*x, minus));
            }
            s.f_store(row.add(lanes(i).start), *x);
        }
        (m, s.strided_sum(&x[..n]))
    }
}

/// Merges tiles from left to right: `o * a` of those before, by fma with `b` of the next.
///
/// # Safety
/// As for [`super::MergeFn`].
#[inline(always)]
pub(crate) unsafe fn merge<S: Simd>(s: S, args: &mut MergeArgs<'_>) {
    let n = args.v_stride;
    let n_tiles = args.tiles.len().div_ceil(args.step);
    let padded = n_tiles.next_multiple_of(16);
    args.factors.clear();
    args.factors.resize(2 * padded, 0.0);
    let (before, page) = args.factors.split_at_mut(padded);
    let mut m = f32::NEG_INFINITY;
    for (tile, (before, page)) in args.tiles.chunks(args.step).zip(before.iter_mut().zip(page.iter_mut())) {
        (*before, *page) = (m, tile[n]);
        m = if *page > m { *page } else { m };
    }
    // SAFETY: both arrays are a whole number of vectors, each tile has `n + 2` floats, and so has the state.
    unsafe {
        let (before, page) = (before.as_mut_ptr(), page.as_mut_ptr());
        for i in (0..n_tiles).step_by(S::LANES) {
            let [a, b] = factors(s, s.f_load(before.add(i)), s.f_load(page.add(i)));
            s.f_store(before.add(i), a);
            s.f_store(page.add(i), b);
        }
        let (tiles, state) = (args.tiles.as_ptr(), args.state.as_mut_ptr());
        let mut l = *tiles.add(n + 1);
        for i in 1..n_tiles {
            l = (*tiles.add(i * args.step + n + 1)).mul_add(*page.add(i), l * *before.add(i));
        }
        (*state.add(n), *state.add(n + 1)) = (m, l);
        let mut d = 0;
        while d < n {
            if n - d >= 4 * S::LANES {
                merge_columns::<S, 4>(s, args, [before, page], n_tiles, d);
                d += 4 * S::LANES;
            } else {
                merge_columns::<S, 1>(s, args, [before, page], n_tiles, d);
                d += S::LANES;
            }
        }
    }
}

/// `V` vectors of values from `d` on.
#[inline(always)]
unsafe fn merge_columns<S: Simd, const V: usize>(
    s: S,
    args: &mut MergeArgs<'_>,
    [before, page]: [*const f32; 2],
    n_tiles: usize,
    d: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let tiles = args.tiles.as_ptr().add(d);
        let mut acc: [S::F; V] = std::array::from_fn(|v| s.f_load(tiles.add(v * S::LANES)));
        for i in 1..n_tiles {
            let (a, b) = (s.f_splat(*before.add(i)), s.f_splat(*page.add(i)));
            for (v, acc) in acc.iter_mut().enumerate() {
                let tile = s.f_load(tiles.add(i * args.step + v * S::LANES));
                *acc = s.f_fma(tile, b, s.f_mul(*acc, a));
            }
        }
        for (v, acc) in acc.into_iter().enumerate() {
            s.f_store(args.state.as_mut_ptr().add(d + v * S::LANES), acc);
        }
    }
}
