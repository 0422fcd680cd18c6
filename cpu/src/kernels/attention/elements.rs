//! The types of a cache's elements, as the kernels load them.

use llamay_plan::{KV_BLOCK, KV_PAGE, KvType};

use super::{Simd, TileArgs, span};
use crate::kv::quant_bytes;

/// Elements that are floats.
pub(super) trait Float {
    /// Bytes of an element.
    const BYTES: usize;

    /// Loads `LANES` elements from number `at` on.
    ///
    /// # Safety
    /// They are readable at `p`.
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F;
}

pub(super) struct Single;
pub(super) struct Half;

impl Float for Single {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F {
        // SAFETY: passed on to the caller.
        unsafe { s.f_load(p.cast::<f32>().add(at)) }
    }
}

impl Float for Half {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F {
        // SAFETY: passed on to the caller.
        unsafe { s.f_load_f16(p.cast::<u16>().add(at)) }
    }
}

/// Elements that are integers in blocks.
pub(super) trait Block {
    const KIND: KvType;
    /// Keys are bytes above their quants by an offset: its number among the multiples of sums in a query's record
    /// ([`crate::acts::ActLayout::negatives`]).
    const OFFSET: usize;

    /// A block of keys at `LANES` positions: each lane of vector `i` has the elements from `4 * i` on.
    ///
    /// # Safety
    /// `p` points to the first lane's part of a block of keys.
    unsafe fn keys<S: Simd>(s: S, p: *const u8) -> [S::I; 8];

    /// The quants' products with 32 activation bytes of each of `Q` queries; `offsets` are those of their sums.
    ///
    /// # Safety
    /// 32 bytes are readable at each of `q`.
    unsafe fn dots<S: Simd, const Q: usize>(
        s: S,
        k: &[S::I; 8],
        q: [*const i8; Q],
        offsets: [i32; Q],
    ) -> [S::I; Q];

    /// `LANES` quants of one position, those of a block's elements from `c` on, and as many from `16 + c` on.
    ///
    /// # Safety
    /// `p` points to a position's block of values, and `c + LANES` is at most 16.
    unsafe fn values<S: Simd>(s: S, p: *const u8, c: usize) -> [S::I; 2];
}

pub(super) struct Bytes;
pub(super) struct Nibbles;

impl Block for Bytes {
    const KIND: KvType = KvType::Q8_0;
    const OFFSET: usize = 2;

    #[inline(always)]
    unsafe fn keys<S: Simd>(s: S, p: *const u8) -> [S::I; 8] {
        // SAFETY: a block is 8 runs of 4 bytes a position.
        std::array::from_fn(|i| unsafe { s.i_load(p.add(i * 4 * KV_PAGE)) })
    }

    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        s: S,
        k: &[S::I; 8],
        q: [*const i8; Q],
        offsets: [i32; Q],
    ) -> [S::I; Q] {
        // SAFETY: passed on to the caller.
        unsafe { s.dots32_offset(k, q, offsets) }
    }

    #[inline(always)]
    unsafe fn values<S: Simd>(s: S, p: *const u8, c: usize) -> [S::I; 2] {
        // SAFETY: a block is 32 bytes.
        unsafe { [s.i_load_i8(p.add(c).cast()), s.i_load_i8(p.add(16 + c).cast())] }
    }
}

impl Block for Nibbles {
    const KIND: KvType = KvType::Q4_0;
    const OFFSET: usize = 0;

    #[inline(always)]
    unsafe fn keys<S: Simd>(s: S, p: *const u8) -> [S::I; 8] {
        let low = s.i_splat(0x0f0f_0f0f);
        let mut keys = [low; 8];
        for i in 0..4 {
            // SAFETY: a block is 4 runs of 4 bytes a position.
            let pairs = unsafe { s.i_load(p.add(i * 4 * KV_PAGE)) };
            keys[i] = s.i_and(pairs, low);
            keys[i + 4] = s.i_and(s.i_shr::<4>(pairs), low);
        }
        keys
    }

    #[inline(always)]
    unsafe fn dots<S: Simd, const Q: usize>(
        s: S,
        k: &[S::I; 8],
        q: [*const i8; Q],
        offsets: [i32; Q],
    ) -> [S::I; Q] {
        let mut dots = offsets.map(|offset| s.i_splat(offset));
        for (dot, q) in dots.iter_mut().zip(q) {
            // SAFETY: passed on to the caller.
            *dot = unsafe { s.dot32(k, 15, q, *dot) };
        }
        dots
    }

    #[inline(always)]
    unsafe fn values<S: Simd>(s: S, p: *const u8, c: usize) -> [S::I; 2] {
        // SAFETY: a block is 16 bytes.
        let pairs = unsafe { s.i_load_u8(p.add(c)) };
        let (low, offset) = (s.i_splat(15), s.i_splat(8));
        [s.i_sub(s.i_and(pairs, low), offset), s.i_sub(s.i_shr::<4>(pairs), offset)]
    }
}

/// Where the scales of a head's keys or values begin.
pub(super) const fn scales_at(kind: KvType, n_blocks: usize) -> usize {
    n_blocks * quant_bytes(kind)
}

/// The scales of all positions in a block of values.
///
/// # Safety
/// `v` points to a head's values in blocks, `n_blocks` a position.
#[inline(always)]
pub(super) unsafe fn value_scales<S: Simd, B: Block>(
    s: S,
    v: *const u8,
    n_blocks: usize,
    block: usize,
) -> [f32; KV_PAGE] {
    let mut scales = [0.0; KV_PAGE];
    // SAFETY: there are as many scales as positions.
    unsafe {
        let from = v.add(scales_at(B::KIND, n_blocks)).cast::<u16>().add(block * KV_PAGE);
        for j in (0..KV_PAGE).step_by(S::LANES) {
            s.f_store(scales.as_mut_ptr().add(j), s.f_load_f16(from.add(j)));
        }
    }
    scales
}

/// Two vectors of values: the quants times the scale, which is exact.
///
/// # Safety
/// As for [`Block::values`].
#[inline(always)]
pub(super) unsafe fn value_pair<S: Simd, B: Block>(s: S, p: *const u8, c: usize, scale: f32) -> [S::F; 2] {
    // SAFETY: passed on to the caller.
    let [a, b] = unsafe { B::values(s, p, c) };
    let scale = s.f_splat(scale);
    [s.f_mul(scale, s.f_from_i(a)), s.f_mul(scale, s.f_from_i(b))]
}

/// Decodes `n` elements, a multiple of 16.
///
/// # Safety
/// They are readable at `from` and writable at `to`.
#[inline(always)]
pub(super) unsafe fn decode_halves<S: Simd>(s: S, from: *const u8, n: usize, to: *mut f32) {
    for at in (0..n).step_by(S::LANES) {
        // SAFETY: passed on to the caller.
        unsafe { s.f_store(to.add(at), Half::load(s, from, at)) };
    }
}

/// Decodes the values of the positions that queries see.
///
/// # Safety
/// As for [`super::TileFn`]; `to` is the scratch for values.
#[inline(always)]
pub(super) unsafe fn decode_blocks<S: Simd, B: Block>(s: S, args: &TileArgs<'_>, to: *mut f32) {
    let n_blocks = args.v_stride / KV_BLOCK;
    let bytes = quant_bytes(B::KIND) / KV_PAGE;
    for b in 0..n_blocks {
        // SAFETY: block `b` of each position is within the values, and as many floats within the scratch.
        unsafe {
            let scales = value_scales::<S, B>(s, args.v, n_blocks, b);
            for j in span(args.queries) {
                let from = args.v.add((j * n_blocks + b) * bytes);
                let to = to.add(j * args.v_stride + b * KV_BLOCK);
                for c in (0..16).step_by(S::LANES) {
                    let [low, high] = value_pair::<S, B>(s, from, c, scales[j]);
                    s.f_store(to.add(c), low);
                    s.f_store(to.add(16 + c), high);
                }
            }
        }
    }
}
