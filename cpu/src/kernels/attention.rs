//! Attention of a few queries over one page of keys and values.
//!
//! A page holds, for each head, the keys transposed (`[head_dim][KV_PAGE]`) and the values (`[KV_PAGE][v_stride]`), so
//! that lanes are positions for scores and elements for values. The order of operations is docs/arithmetic.md's: a score
//! is one fused chain over the head's elements; the tile's sum has 8 strided partials; a value is one fused chain over
//! the tile's positions.

use llamay_formats::tree8;
use llamay_plan::{KV_PAGE, KvType};

use super::elementwise::softcap;
use super::simd::Simd;
use crate::math;

/// One query row against the page.
#[derive(Clone, Copy)]
pub(crate) struct Query {
    /// `head_dim` floats.
    pub(crate) q: *const f32,
    /// The positions that it sees are `lo..hi`, of the page's [`KV_PAGE`]; never empty.
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    /// `v_stride` values, then the maximum and the sum.
    pub(crate) out: *mut f32,
}

/// Some queries against one head of one page.
pub(crate) struct TileArgs<'a> {
    pub(crate) head_dim: usize,
    /// Elements from one position's values to the next: `head_dim` rounded up to a whole number of vectors.
    pub(crate) v_stride: usize,
    /// The factor of every score.
    pub(crate) scale: f32,
    /// The bound of scores.
    pub(crate) softcap: Option<f32>,
    pub(crate) kv: KvType,
    pub(crate) k: *const u8,
    pub(crate) v: *const u8,
    pub(crate) queries: &'a [Query],
}

/// An attention kernel.
///
/// # Safety
/// The CPU has the kernel's instruction set; `k` and `v` point to a head of a page of type `kv`; queries point to
/// `head_dim` floats and to `v_stride + 2` writable ones that nobody else touches.
pub(crate) type TileFn = unsafe fn(&TileArgs<'_>);

/// Vectors that cover a page.
const fn vectors<S: Simd>() -> usize {
    KV_PAGE / S::LANES
}

/// # Safety
/// As for [`TileFn`].
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd>(s: S, args: &TileArgs<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match args.kv {
            KvType::F16 => tile_of::<S, true>(s, args),
            KvType::F32 => tile_of::<S, false>(s, args),
        }
    }
}

#[inline(always)]
unsafe fn tile_of<S: Simd, const HALF: bool>(s: S, args: &TileArgs<'_>) {
    let mut queries = args.queries;
    // SAFETY: passed on to the caller.
    unsafe {
        while let Some((four, rest)) = queries.split_first_chunk::<4>() {
            several::<S, HALF, 4>(s, args, four);
            queries = rest;
        }
        while let Some((one, rest)) = queries.split_first_chunk::<1>() {
            several::<S, HALF, 1>(s, args, one);
            queries = rest;
        }
    }
}

/// Loads `LANES` cache elements, of half or of single precision.
#[inline(always)]
unsafe fn load<S: Simd, const HALF: bool>(s: S, p: *const u8, at: usize) -> S::F {
    // SAFETY: the caller vouches for the elements.
    unsafe { if HALF { s.f_load_f16(p.cast::<u16>().add(at)) } else { s.f_load(p.cast::<f32>().add(at)) } }
}

/// `Q` queries: scores, their exponentials, weighted values.
#[inline(always)]
unsafe fn several<S: Simd, const HALF: bool, const Q: usize>(
    s: S,
    args: &TileArgs<'_>,
    queries: &[Query; Q],
) {
    let mut p = [[0.0f32; KV_PAGE]; Q];
    // SAFETY: passed on to the caller.
    unsafe {
        // At least 8 chains at once, to hide the latency of a fused multiply-add.
        let mut j = 0;
        while j < KV_PAGE {
            if Q == 1 && vectors::<S>() >= 8 {
                scores::<S, HALF, Q, 8>(s, args, queries, &mut p, j);
                j += 8 * S::LANES;
            } else if Q == 1 || S::LANES == 16 {
                scores::<S, HALF, Q, 4>(s, args, queries, &mut p, j);
                j += 4 * S::LANES;
            } else {
                scores::<S, HALF, Q, 2>(s, args, queries, &mut p, j);
                j += 2 * S::LANES;
            }
        }
        for (p, query) in p.iter_mut().zip(queries) {
            let (m, l) = exponentials(p, args, query.lo, query.hi);
            *query.out.add(args.v_stride) = m;
            *query.out.add(args.v_stride + 1) = l;
        }
        // A position that only some of the queries see has weight 0 for the others, which changes no bit.
        let lo = queries.iter().map(|q| q.lo).min().unwrap_or(0);
        let hi = queries.iter().map(|q| q.hi).max().unwrap_or(0);
        let mut d = 0;
        while d < args.v_stride {
            if Q == 1 && args.v_stride - d >= 8 * S::LANES {
                values::<S, HALF, Q, 8>(s, args, queries, &p, lo..hi, d);
                d += 8 * S::LANES;
            } else if (Q == 1 || S::LANES == 16) && args.v_stride - d >= 4 * S::LANES {
                values::<S, HALF, Q, 4>(s, args, queries, &p, lo..hi, d);
                d += 4 * S::LANES;
            } else if args.v_stride - d >= 2 * S::LANES {
                values::<S, HALF, Q, 2>(s, args, queries, &p, lo..hi, d);
                d += 2 * S::LANES;
            } else {
                values::<S, HALF, Q, 1>(s, args, queries, &p, lo..hi, d);
                d += S::LANES;
            }
        }
    }
}

/// Products of `Q` queries with the keys of `V` vectors of positions from `j` on.
#[inline(always)]
unsafe fn scores<S: Simd, const HALF: bool, const Q: usize, const V: usize>(
    s: S,
    args: &TileArgs<'_>,
    queries: &[Query; Q],
    out: &mut [[f32; KV_PAGE]; Q],
    j: usize,
) {
    // SAFETY: `V` vectors from `j` on lie within the page.
    unsafe {
        let mut acc = [[s.f_splat(0.0); V]; Q];
        for d in 0..args.head_dim {
            let k: [S::F; V] =
                std::array::from_fn(|v| load::<S, HALF>(s, args.k, d * KV_PAGE + j + v * S::LANES));
            for (acc, query) in acc.iter_mut().zip(queries) {
                let q = s.f_splat(*query.q.add(d));
                for (acc, k) in acc.iter_mut().zip(k) {
                    *acc = s.f_fma(q, k, *acc);
                }
            }
        }
        for (out, acc) in out.iter_mut().zip(acc) {
            for (v, acc) in acc.into_iter().enumerate() {
                s.f_store(out.as_mut_ptr().add(j + v * S::LANES), acc);
            }
        }
    }
}

/// Turns products into weights `exp(score - maximum)`, 0 outside of `lo..hi`; returns the maximum and the sum.
#[inline(always)]
pub(crate) fn exponentials(p: &mut [f32; KV_PAGE], args: &TileArgs<'_>, lo: usize, hi: usize) -> (f32, f32) {
    for v in p.iter_mut() {
        *v *= args.scale;
    }
    if let Some(cap) = args.softcap {
        softcap(p, cap);
    }
    let mut max = [f32::NEG_INFINITY; 16];
    let (rows, _) = p.as_chunks_mut::<16>();
    for (i, row) in rows.iter_mut().enumerate() {
        for (j, (v, m)) in row.iter_mut().zip(&mut max).enumerate() {
            let at = 16 * i + j;
            let seen = (at >= lo) & (at < hi);
            *v = if seen { *v } else { f32::NEG_INFINITY };
            *m = if *v > *m { *v } else { *m };
        }
    }
    let m = max.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m });
    for v in p.iter_mut() {
        *v = math::exp(*v - m);
    }
    let mut partial = [0.0f32; 8];
    let (rows, _) = p.as_chunks::<8>();
    for row in rows {
        for (s, v) in partial.iter_mut().zip(row) {
            *s += v;
        }
    }
    (m, tree8(partial))
}

/// Weighted values of `V` vectors of elements from `d` on.
#[inline(always)]
unsafe fn values<S: Simd, const HALF: bool, const Q: usize, const V: usize>(
    s: S,
    args: &TileArgs<'_>,
    queries: &[Query; Q],
    p: &[[f32; KV_PAGE]; Q],
    seen: std::ops::Range<usize>,
    d: usize,
) {
    // SAFETY: `seen` lies within the page and `V` vectors from `d` on within `v_stride`.
    unsafe {
        let mut acc = [[s.f_splat(0.0); V]; Q];
        for j in seen {
            let v: [S::F; V] =
                std::array::from_fn(|v| load::<S, HALF>(s, args.v, j * args.v_stride + d + v * S::LANES));
            for (acc, p) in acc.iter_mut().zip(p) {
                let p = s.f_splat(*p.get_unchecked(j));
                for (acc, v) in acc.iter_mut().zip(v) {
                    *acc = s.f_fma(p, v, *acc);
                }
            }
        }
        for (acc, query) in acc.into_iter().zip(queries) {
            for (v, acc) in acc.into_iter().enumerate() {
                s.f_store(query.out.add(d + v * S::LANES), acc);
            }
        }
    }
}
