//! Attention of a few queries over one page of keys and values.
//!
//! A page holds each head's keys transposed and its values position by position ([`crate::kv::PageShape`]), so that lanes
//! are positions for scores and elements for values, and no sum runs across lanes. The order of operations is
//! docs/arithmetic.md's. A page is worked through in three passes, so that its keys, and then its values, stay in L1:
//! scores of all queries, their weights, weighted values. Queries are taken in groups of up to [`GROUP`], which share each
//! load of a key or value. Where there are more groups than one, the page is decoded to floats once for all.

mod elements;
mod scores;
mod values;
mod weights;

use std::ops::Range;

use llamay_plan::{KV_PAGE, KvType};

use super::simd::Simd;
use elements::{Bytes, Half, Nibbles, Single};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use weights::merge;

/// One query row against the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// Where it is behind [`TileArgs::q`].
    pub(crate) q: usize,
    /// The positions that it sees are `lo..hi`, of the page's [`KV_PAGE`]; never empty.
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    /// Where its state is behind [`TileArgs::out`]: `v_stride` values, then the maximum and the sum.
    pub(crate) out: usize,
    /// Whether the page is merged into the state. If not, it is the first one, and its results are the state.
    pub(crate) merge: bool,
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
    /// The head's keys and values, as [`crate::kv::PageShape`] lays them out.
    pub(crate) k: *const u8,
    pub(crate) v: *const u8,
    /// Rows of `head_dim` floats; for a quantised cache, records of kind `I8x32` over whole blocks.
    pub(crate) q: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) queries: &'a [Query],
    /// [`scratch_len`] floats.
    pub(crate) scratch: *mut f32,
}

/// An attention kernel.
///
/// # Safety
/// The CPU has the kernel's instruction set; `k` and `v` point to a head of a page of type `kv`; queries point behind `q` to
/// `head_dim` floats or to a record, and behind `out` to `v_stride + 2` floats that, as the scratch, nobody else touches.
pub(crate) type TileFn = unsafe fn(&TileArgs<'_>);

/// Tiles of consecutive pages for one query, to be merged.
pub(crate) struct MergeArgs<'a> {
    /// Each tile is values, then the maximum and the sum; the last ends with the slice.
    pub(crate) tiles: &'a [f32],
    /// Floats from one tile to the next.
    pub(crate) step: usize,
    pub(crate) v_stride: usize,
    /// Room for two factors a tile.
    pub(crate) factors: &'a mut Vec<f32>,
    /// `v_stride + 2` floats.
    pub(crate) state: &'a mut [f32],
}

/// A kernel that merges tiles from left to right.
///
/// # Safety
/// The CPU has the kernel's instruction set.
pub(crate) type MergeFn = unsafe fn(&mut MergeArgs<'_>);

/// Queries that share the loads of keys and values. Six, by four vectors, are 24 sums that wait for no other, and a load feeds
/// six fused multiply-adds; with 16 registers they are twelve.
const GROUP: usize = 6;

/// Floats of scratch that a tile of `n` queries takes: decoded keys and values, weights, and a few numbers a query.
pub(crate) const fn scratch_len(head_dim: usize, v_stride: usize, n: usize) -> usize {
    KV_PAGE * (head_dim + v_stride + n) + 4 * n.next_multiple_of(16)
}

/// The parts of the scratch.
#[derive(Clone, Copy)]
struct Scratch {
    /// `[head_dim][KV_PAGE]`.
    keys: *mut f32,
    /// `[KV_PAGE][v_stride]`.
    values: *mut f32,
    /// `[queries][KV_PAGE]`: scores, then weights.
    weights: *mut f32,
    /// For each query the factor of its state, that of the page, the page's sum, and the state's.
    factors: [*mut f32; 4],
}

impl TileArgs<'_> {
    /// # Safety
    /// As for [`TileFn`].
    #[inline(always)]
    unsafe fn parts(&self) -> Scratch {
        // SAFETY: within `scratch_len` floats.
        unsafe {
            let values = self.scratch.add(KV_PAGE * self.head_dim);
            let weights = values.add(KV_PAGE * self.v_stride);
            let n = self.queries.len();
            let factors = [0, 1, 2, 3].map(|i| weights.add(KV_PAGE * n + i * n.next_multiple_of(16)));
            Scratch { keys: self.scratch, values, weights, factors }
        }
    }
}

impl Scratch {
    /// The rows and factors of the queries from number `first` on.
    ///
    /// # Safety
    /// There are more queries than `first`.
    #[inline(always)]
    unsafe fn of(self, first: usize) -> Scratch {
        // SAFETY: passed on to the caller.
        unsafe {
            let factors = self.factors.map(|f| f.add(first));
            Scratch { weights: self.weights.add(first * KV_PAGE), factors, ..self }
        }
    }
}

/// The positions that any of the queries sees. One that only some of them see has weight 0 for the others, which changes no
/// bit.
#[inline(always)]
fn span(queries: &[Query]) -> Range<usize> {
    let (mut lo, mut hi) = (KV_PAGE, 0);
    for query in queries {
        lo = if query.lo < lo { query.lo } else { lo };
        hi = if query.hi > hi { query.hi } else { hi };
    }
    lo..hi
}

/// Runs `$body` for groups of queries of nearly the same size, where `$q` is a constant: the group's size. `$first` is the
/// number of its first query. A macro, since a closure may not inherit the caller's features.
macro_rules! for_each_group {
    ($queries:expr, |$group:ident: [$q:ident], $first:ident| $body:expr) => {{
        let mut $first = 0;
        while $first < $queries.len() {
            let left = $queries.len() - $first;
            let size = left.div_ceil(left.div_ceil($crate::kernels::attention::GROUP));
            for_each_group!(@ $queries, $group, $q, $first, size, $body, 6 5 4 3 2 1);
            $first += size;
        }
    }};
    (@ $queries:expr, $group:ident, $q:ident, $first:ident, $size:ident, $body:expr, $($n:literal)*) => {
        $(if $size == $n {
            const $q: usize = $n;
            if let Some($group) = $queries[$first..].first_chunk::<$q>() {
                $body
            }
        })*
    };
}
use for_each_group;

/// # Safety
/// As for [`TileFn`].
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd>(s: S, args: &TileArgs<'_>) {
    let many = args.queries.len() > GROUP;
    // SAFETY: passed on to the caller.
    unsafe {
        let scratch = args.parts();
        let (k, v) = (args.k, args.v);
        let (keys, values) = (scratch.keys.cast_const().cast(), scratch.values.cast_const().cast());
        match args.kv {
            KvType::F32 => {
                scores::of_floats::<S, Single>(s, args, k, scratch);
                weights::weights(s, args, scratch);
                values::of_floats::<S, Single>(s, args, v, scratch);
            }
            KvType::F16 if many => {
                elements::decode_halves(s, k, args.head_dim * KV_PAGE, scratch.keys);
                scores::of_floats::<S, Single>(s, args, keys, scratch);
                weights::weights(s, args, scratch);
                elements::decode_halves(s, v, args.v_stride * KV_PAGE, scratch.values);
                values::of_floats::<S, Single>(s, args, values, scratch);
            }
            KvType::F16 => {
                scores::of_floats::<S, Half>(s, args, k, scratch);
                weights::weights(s, args, scratch);
                values::of_floats::<S, Half>(s, args, v, scratch);
            }
            KvType::Q8_0 => {
                scores::of_blocks::<S, Bytes>(s, args, scratch);
                weights::weights(s, args, scratch);
                if many {
                    elements::decode_blocks::<S, Bytes>(s, args, scratch.values);
                    values::of_floats::<S, Single>(s, args, values, scratch);
                } else {
                    values::of_blocks::<S, Bytes>(s, args, scratch);
                }
            }
            KvType::Q4_0 => {
                scores::of_blocks::<S, Nibbles>(s, args, scratch);
                weights::weights(s, args, scratch);
                if many {
                    elements::decode_blocks::<S, Nibbles>(s, args, scratch.values);
                    values::of_floats::<S, Single>(s, args, values, scratch);
                } else {
                    values::of_blocks::<S, Nibbles>(s, args, scratch);
                }
            }
        }
    }
}
