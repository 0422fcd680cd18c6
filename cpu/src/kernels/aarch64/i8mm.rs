//! NEON with the 8-bit matrix product extension: 2 rows by 2 columns an instruction, 8 weights deep.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::{DotProd, asm};
use crate::kernels::simd::Simd;

/// Proof that the CPU has `i8mm`, and what [`DotProd`] asks for.
///
/// As a [`Simd`] it is `DotProd`: a vector of rows times one column has no use for a second one. [`smmla`](super::smmla)
/// multiplies pairs of columns.
#[derive(Clone, Copy)]
pub(crate) struct I8mm(DotProd);

/// 32 weights of eight rows: for each 8 weights a register for each two rows.
pub(super) type Weights = [[int8x16_t; 4]; 4];

/// Values of eight rows and two columns: rows 0 to 3 and rows 4 to 7, of each row its two columns side by side.
pub(super) type Pairs<V> = [V; 2];

impl I8mm {
    pub(crate) fn new() -> Option<I8mm> {
        if is_aarch64_feature_detected!("i8mm") { DotProd::new().map(I8mm) } else { None }
    }

    /// Each byte less `offset`.
    #[inline(always)]
    pub(super) fn less(self, q: int32x4x2_t, offset: u8) -> int32x4x2_t {
        // SAFETY: the token proves NEON.
        let less = |q| unsafe { vreinterpretq_s32_u8(vsubq_u8(vreinterpretq_u8_s32(q), vdupq_n_u8(offset))) };
        int32x4x2_t(less(q.0), less(q.1))
    }

    /// Unpacked words, a row a lane, as `smmla` takes them.
    #[inline(always)]
    pub(super) fn weights(self, q: &[int32x4x2_t; 8]) -> Weights {
        // SAFETY: the token proves NEON.
        std::array::from_fn(|j| unsafe {
            let (a, b) = (q[2 * j], q[2 * j + 1]);
            [vzip1q_s32(a.0, b.0), vzip2q_s32(a.0, b.0), vzip1q_s32(a.1, b.1), vzip2q_s32(a.1, b.1)]
                .map(|q| vreinterpretq_s8_s32(q))
        })
    }

    /// A value of each row, for both columns.
    #[inline(always)]
    pub(super) fn rows(self, x: int32x4x2_t) -> Pairs<int32x4x2_t> {
        // SAFETY: the token proves NEON.
        let twice = |x| unsafe { int32x4x2_t(vzip1q_s32(x, x), vzip2q_s32(x, x)) };
        [twice(x.0), twice(x.1)]
    }

    /// As [`I8mm::rows`], for floats.
    #[inline(always)]
    pub(super) fn rows_f(self, x: float32x4x2_t) -> Pairs<float32x4x2_t> {
        // SAFETY: the token proves NEON.
        let twice = |x| unsafe { float32x4x2_t(vzip1q_f32(x, x), vzip2q_f32(x, x)) };
        [twice(x.0), twice(x.1)]
    }

    /// A 32-bit value of each of two columns, for four rows.
    ///
    /// # Safety
    /// 4 bytes are readable at `at` of both columns.
    #[inline(always)]
    pub(super) unsafe fn columns(self, x: [*const u8; 2], at: usize) -> int32x4x2_t {
        // SAFETY: the token proves NEON, and the caller vouches for the bytes.
        unsafe {
            let [a, b] = x.map(|x| vdupq_n_s32(x.add(at).cast::<i32>().read_unaligned()));
            let both = vzip1q_s32(a, b);
            int32x4x2_t(both, both)
        }
    }

    /// As [`I8mm::columns`], for floats.
    ///
    /// # Safety
    /// As for [`I8mm::columns`].
    #[inline(always)]
    pub(super) unsafe fn columns_f(self, x: [*const u8; 2], at: usize) -> float32x4x2_t {
        // SAFETY: passed on to the caller; the bits are a float's.
        unsafe {
            let both = vreinterpretq_f32_s32(self.columns(x, at).0);
            float32x4x2_t(both, both)
        }
    }

    /// Dot products of `N` weights from `FIRST` on, multiples of 16, with as many activations of two columns.
    ///
    /// # Safety
    /// `N` bytes are readable at `at` of both columns.
    #[inline(always)]
    pub(super) unsafe fn dot<const FIRST: usize, const N: usize>(
        self,
        w: &Weights,
        x: [*const u8; 2],
        at: usize,
    ) -> Pairs<int32x4x2_t> {
        const { assert!(N == 16 || N == 32) }
        // SAFETY: passed on to the caller.
        unsafe {
            let mut acc = [vdupq_n_s32(0); 4];
            acc = self.dot16(acc, w[FIRST / 8], w[FIRST / 8 + 1], x, at);
            if N == 32 {
                acc = self.dot16(acc, w[2], w[3], x, at + 16);
            }
            [int32x4x2_t(acc[0], acc[1]), int32x4x2_t(acc[2], acc[3])]
        }
    }

    /// Adds the products of twice 8 weights. Written out, since loops over assembly are not unrolled.
    ///
    /// # Safety
    /// 16 bytes are readable at `at` of both columns.
    #[inline(always)]
    unsafe fn dot16(
        self,
        acc: [int32x4_t; 4],
        first: [int8x16_t; 4],
        second: [int8x16_t; 4],
        x: [*const u8; 2],
        at: usize,
    ) -> [int32x4_t; 4] {
        // SAFETY: the token proves the features, and the caller vouches for the bytes.
        unsafe {
            let (a, b) = (vld1q_u64(x[0].add(at).cast()), vld1q_u64(x[1].add(at).cast()));
            let (low, high) =
                (vreinterpretq_s8_u64(vzip1q_u64(a, b)), vreinterpretq_s8_u64(vzip2q_u64(a, b)));
            let acc = [
                asm::smmla(acc[0], first[0], low),
                asm::smmla(acc[1], first[1], low),
                asm::smmla(acc[2], first[2], low),
                asm::smmla(acc[3], first[3], low),
            ];
            [
                asm::smmla(acc[0], second[0], high),
                asm::smmla(acc[1], second[1], high),
                asm::smmla(acc[2], second[2], high),
                asm::smmla(acc[3], second[3], high),
            ]
        }
    }

    /// The eight rows of each of the two columns.
    #[inline(always)]
    pub(super) fn apart(self, y: Pairs<float32x4x2_t>) -> [float32x4x2_t; 2] {
        // SAFETY: the token proves NEON.
        unsafe {
            [
                float32x4x2_t(vuzp1q_f32(y[0].0, y[0].1), vuzp1q_f32(y[1].0, y[1].1)),
                float32x4x2_t(vuzp2q_f32(y[0].0, y[0].1), vuzp2q_f32(y[1].0, y[1].1)),
            ]
        }
    }
}

impl Simd for I8mm {
    super::inherited!();

    #[inline(always)]
    unsafe fn dot32(self, q: &[int32x4x2_t; 8], max: i32, a: *const i8, init: int32x4x2_t) -> int32x4x2_t {
        // SAFETY: passed on to the caller.
        unsafe { self.0.dot32(q, max, a, init) }
    }
    #[inline(always)]
    unsafe fn dot_scaled<const FIRST: usize, const N: usize>(
        self,
        q: &[int32x4x2_t; 8],
        max: i32,
        a: *const i8,
        scale: int32x4x2_t,
        acc: int32x4x2_t,
    ) -> int32x4x2_t {
        // SAFETY: passed on to the caller.
        unsafe { self.0.dot_scaled::<FIRST, N>(q, max, a, scale, acc) }
    }
}
