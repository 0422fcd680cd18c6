//! NEON with the dot product extension: byte products straight to 32 bits.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::{Neon, asm};
use crate::kernels::simd::Simd;

/// Proof that the CPU has `dotprod`, and what [`Neon`] asks for.
#[derive(Clone, Copy)]
pub(crate) struct DotProd(Neon);

impl DotProd {
    pub(crate) fn new() -> Option<DotProd> {
        if is_aarch64_feature_detected!("dotprod") { Neon::new().map(DotProd) } else { None }
    }

    /// `acc` plus each row's dot product of `q[first..first + n]` with `4 * n` activations, `n` a multiple of 4.
    ///
    /// # Safety
    /// `4 * n` bytes are readable at `a`.
    #[inline(always)]
    unsafe fn dot(
        self,
        q: &[int32x4x2_t; 8],
        first: usize,
        n: usize,
        a: *const i8,
        acc: int32x4x2_t,
    ) -> int32x4x2_t {
        /// Four words of both registers' rows against the four lanes of `a`.
        macro_rules! sdot4 {
            ($half:tt, $acc:expr, $at:expr, $a:ident) => {{
                let w = |s: usize| vreinterpretq_s8_s32(q[$at + s].$half);
                let acc = asm::sdot::<0>($acc, w(0), $a);
                let acc = asm::sdot::<1>(acc, w(1), $a);
                let acc = asm::sdot::<2>(acc, w(2), $a);
                asm::sdot::<3>(acc, w(3), $a)
            }};
        }
        let mut acc = acc;
        for s in (0..n).step_by(4) {
            // SAFETY: the token proves the feature, and the caller vouches for the bytes.
            unsafe {
                let a = vld1q_s8(a.add(4 * s));
                acc = int32x4x2_t(sdot4!(0, acc.0, first + s, a), sdot4!(1, acc.1, first + s, a));
            }
        }
        acc
    }
}

impl Simd for DotProd {
    super::inherited!();

    // No weight is above 127 (`SIGNED`), so the bytes of the unsigned planes are their signed selves.
    #[inline(always)]
    unsafe fn dot32(self, q: &[int32x4x2_t; 8], _max: i32, a: *const i8, init: int32x4x2_t) -> int32x4x2_t {
        // SAFETY: passed on to the caller.
        unsafe { self.dot(q, 0, 8, a, init) }
    }
    #[inline(always)]
    unsafe fn dot_scaled<const FIRST: usize, const N: usize>(
        self,
        q: &[int32x4x2_t; 8],
        _max: i32,
        a: *const i8,
        scale: int32x4x2_t,
        acc: int32x4x2_t,
    ) -> int32x4x2_t {
        // SAFETY: passed on to the caller.
        unsafe {
            let dot = self.dot(q, FIRST, N, a, self.i_splat(0));
            int32x4x2_t(vmlaq_s32(acc.0, dot.0, scale.0), vmlaq_s32(acc.1, dot.1, scale.1))
        }
    }
}
