//! NEON without the dot product extension: byte products through 16-bit sums.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::asm;
use crate::kernels::simd::{Simd, four};

/// Proof that the CPU has NEON and is little-endian.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn new() -> Option<Neon> {
        // Packed words are little-endian, and their bytes must stand in a register as in memory.
        (cfg!(target_endian = "little") && is_aarch64_feature_detected!("neon")).then_some(Neon(()))
    }
}

/// Runs intrinsics of the features that the token proves.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` exists only where the CPU has the features; pointers are vouched for by the caller.
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks)]
        unsafe {
            $e
        }
    }};
}

/// A register of four rows' bytes.
#[inline(always)]
fn bytes(q: int32x4_t) -> int8x16_t {
    // SAFETY: NEON is part of every AArch64 target that has these types.
    unsafe { vreinterpretq_s8_s32(q) }
}

/// Runs `$step!(i)` for `i` of a list. Loops over assembly are not unrolled, and then what they change lies in memory.
macro_rules! unrolled {
    ($step:ident: $($i:literal)*) => { $($step!($i);)* };
}

impl Neon {
    /// Products of `4 * n` weights, `q[first..first + n]`, with as many activations, added up over the `n` words: 16-bit lanes
    /// of rows 0 and 1, 2 and 3, 4 and 5, 6 and 7. `n` times `|weight| * 127` must fit 16 bits.
    ///
    /// # Safety
    /// `4 * n` bytes are readable at `a`.
    #[inline(always)]
    unsafe fn sum16(self, q: &[int32x4x2_t; 8], first: usize, n: usize, a: *const i8) -> [int16x8_t; 4] {
        op!({
            let word = |s: usize| {
                let q = q[first + s];
                (bytes(q.0), bytes(q.1), bytes(vdupq_n_s32(four(a.add(4 * s)))))
            };
            let (low, high, x) = word(0);
            let mut sums =
                [asm::smull(low, x), asm::smull2(low, x), asm::smull(high, x), asm::smull2(high, x)];
            macro_rules! step {
                ($s:literal) => {
                    if $s < n {
                        let (low, high, x) = word($s);
                        sums = [
                            asm::smlal(sums[0], low, x),
                            asm::smlal2(sums[1], low, x),
                            asm::smlal(sums[2], high, x),
                            asm::smlal2(sums[3], high, x),
                        ];
                    }
                };
            }
            unrolled!(step: 1 2 3 4 5 6 7);
            sums
        })
    }

    /// Each row's dot product of `4 * n` weights with as many activations, through as few 16-bit sums as hold them.
    ///
    /// # Safety
    /// `4 * n` bytes are readable at `a`.
    #[inline(always)]
    unsafe fn dot(self, q: &[int32x4x2_t; 8], first: usize, n: usize, max: i32, a: *const i8) -> int32x4x2_t {
        op!({
            // A lane takes one product a step, and 32767 in all: 8 * 31 * 127, 4 * 63 * 127, 2 * 128 * 127.
            let run = if max <= 31 {
                8
            } else if max <= 63 {
                4
            } else {
                2
            };
            let run = if run < n { run } else { n };
            // Two 32-bit lanes a row, which meet at the end.
            let mut wide = self.sum16(q, first, run, a).map(|sum| vpaddlq_s16(sum));
            macro_rules! more {
                ($i:literal) => {
                    if $i * run < n {
                        let sums = self.sum16(q, first + $i * run, run, a.add($i * 4 * run));
                        wide = [
                            vpadalq_s16(wide[0], sums[0]),
                            vpadalq_s16(wide[1], sums[1]),
                            vpadalq_s16(wide[2], sums[2]),
                            vpadalq_s16(wide[3], sums[3]),
                        ];
                    }
                };
            }
            unrolled!(more: 1 2 3);
            int32x4x2_t(vpaddq_s32(wide[0], wide[1]), vpaddq_s32(wide[2], wide[3]))
        })
    }
}

/// An intrinsic on both registers of a pair.
macro_rules! both {
    ($pair:ident, $f:ident, $a:ident $(, $more:ident)*) => {
        op!($pair($f($a.0 $(, $more.0)*), $f($a.1 $(, $more.1)*)))
    };
}

impl Simd for Neon {
    const LANES: usize = 8;
    const SIGNED: bool = true;
    type F = float32x4x2_t;
    type I = int32x4x2_t;

    #[inline(always)]
    fn f_splat(self, x: f32) -> float32x4x2_t {
        op!(float32x4x2_t(vdupq_n_f32(x), vdupq_n_f32(x)))
    }
    #[inline(always)]
    fn f_add(self, a: float32x4x2_t, b: float32x4x2_t) -> float32x4x2_t {
        both!(float32x4x2_t, vaddq_f32, a, b)
    }
    #[inline(always)]
    fn f_mul(self, a: float32x4x2_t, b: float32x4x2_t) -> float32x4x2_t {
        both!(float32x4x2_t, vmulq_f32, a, b)
    }
    #[inline(always)]
    fn f_fma(self, a: float32x4x2_t, b: float32x4x2_t, c: float32x4x2_t) -> float32x4x2_t {
        both!(float32x4x2_t, vfmaq_f32, c, a, b)
    }
    #[inline(always)]
    fn f_from_i(self, a: int32x4x2_t) -> float32x4x2_t {
        both!(float32x4x2_t, vcvtq_f32_s32, a)
    }
    #[inline(always)]
    unsafe fn f_load(self, p: *const f32) -> float32x4x2_t {
        op!(float32x4x2_t(vld1q_f32(p), vld1q_f32(p.add(4))))
    }
    #[inline(always)]
    unsafe fn f_load_f16(self, p: *const u16) -> float32x4x2_t {
        op!({
            let x = vld1q_u16(p);
            float32x4x2_t(asm::fcvtl(x), asm::fcvtl2(x))
        })
    }
    #[inline(always)]
    unsafe fn f_load_bf16(self, p: *const u16) -> float32x4x2_t {
        op!({
            let x = vld1q_u16(p);
            let low = vshll_n_u16::<16>(vget_low_u16(x));
            float32x4x2_t(vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(vshll_high_n_u16::<16>(x)))
        })
    }
    #[inline(always)]
    unsafe fn f_store(self, p: *mut f32, x: float32x4x2_t) {
        op!({
            vst1q_f32(p, x.0);
            vst1q_f32(p.add(4), x.1);
        })
    }

    #[inline(always)]
    unsafe fn store_trees(self, v: [float32x4x2_t; 4], out: *mut f32) {
        op!({
            let [a, b, c, d] = v.map(|v| vpaddq_f32(v.0, v.1));
            vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
        })
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        op!(asm::prfm(p))
    }
    #[inline(always)]
    fn i_splat(self, x: i32) -> int32x4x2_t {
        op!(int32x4x2_t(vdupq_n_s32(x), vdupq_n_s32(x)))
    }
    #[inline(always)]
    fn i_and(self, a: int32x4x2_t, b: int32x4x2_t) -> int32x4x2_t {
        both!(int32x4x2_t, vandq_s32, a, b)
    }
    #[inline(always)]
    fn i_or(self, a: int32x4x2_t, b: int32x4x2_t) -> int32x4x2_t {
        both!(int32x4x2_t, vorrq_s32, a, b)
    }
    #[inline(always)]
    fn i_add(self, a: int32x4x2_t, b: int32x4x2_t) -> int32x4x2_t {
        both!(int32x4x2_t, vaddq_s32, a, b)
    }
    #[inline(always)]
    fn i_sub(self, a: int32x4x2_t, b: int32x4x2_t) -> int32x4x2_t {
        both!(int32x4x2_t, vsubq_s32, a, b)
    }
    #[inline(always)]
    fn i_mul(self, a: int32x4x2_t, b: int32x4x2_t) -> int32x4x2_t {
        both!(int32x4x2_t, vmulq_s32, a, b)
    }
    // By a register, since the immediate's type does not convert; the compiler makes an immediate of the constant.
    #[inline(always)]
    fn i_shl<const N: u32>(self, a: int32x4x2_t) -> int32x4x2_t {
        op!(int32x4x2_t(vshlq_s32(a.0, vdupq_n_s32(N as i32)), vshlq_s32(a.1, vdupq_n_s32(N as i32))))
    }
    #[inline(always)]
    fn i_shr<const N: u32>(self, a: int32x4x2_t) -> int32x4x2_t {
        op!({
            let by = vdupq_n_s32(-(N as i32));
            let shift = |a| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), by));
            int32x4x2_t(shift(a.0), shift(a.1))
        })
    }
    #[inline(always)]
    fn without_128(self, a: int32x4x2_t) -> int32x4x2_t {
        op!({
            let top = vdupq_n_s32(0x8080_8080_u32 as i32);
            int32x4x2_t(veorq_s32(a.0, top), veorq_s32(a.1, top))
        })
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], q: int32x4x2_t) -> int32x4x2_t {
        op!({
            let table = vld1q_u8(table.as_ptr());
            let of = |q| vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(q)));
            int32x4x2_t(of(q.0), of(q.1))
        })
    }
    #[inline(always)]
    unsafe fn i_load(self, p: *const u8) -> int32x4x2_t {
        op!(int32x4x2_t(vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p.add(16)))))
    }
    #[inline(always)]
    unsafe fn pairs_u8(self, p: *const u8) -> int32x4x2_t {
        op!({
            let x = vld1q_u8(p);
            let low = vmovl_u8(vget_low_u8(x));
            int32x4x2_t(vreinterpretq_s32_u16(low), vreinterpretq_s32_u16(vmovl_high_u8(x)))
        })
    }
    #[inline(always)]
    unsafe fn pairs_i8(self, p: *const u8) -> int32x4x2_t {
        op!({
            let x = vld1q_s8(p.cast());
            let low = vmovl_s8(vget_low_s8(x));
            int32x4x2_t(vreinterpretq_s32_s16(low), vreinterpretq_s32_s16(vmovl_high_s8(x)))
        })
    }
    #[inline(always)]
    fn madd_pairs(self, acc: int32x4x2_t, w: int32x4x2_t, a: int32x4x2_t) -> int32x4x2_t {
        op!({
            // The first factors of eight rows, and the second: the same for all columns.
            let (low, high) = (vreinterpretq_s16_s32(w.0), vreinterpretq_s16_s32(w.1));
            let (w0, w1) = (vuzp1q_s16(low, high), vuzp2q_s16(low, high));
            let (x, y) = (vreinterpretq_s16_s32(a.0), vreinterpretq_s16_s32(a.1));
            let (a0, a1) = (vuzp1q_s16(x, y), vuzp2q_s16(x, y));
            int32x4x2_t(
                vmlal_s16(
                    vmlal_s16(acc.0, vget_low_s16(w0), vget_low_s16(a0)),
                    vget_low_s16(w1),
                    vget_low_s16(a1),
                ),
                vmlal_high_s16(vmlal_high_s16(acc.1, w0, a0), w1, a1),
            )
        })
    }

    // A factor fills its lane, for the 32-bit multiply behind the dot product.
    #[inline(always)]
    fn scale_low(self, pairs: int32x4x2_t) -> int32x4x2_t {
        op!({
            let low = |p| vshrq_n_s32::<16>(vshlq_n_s32::<16>(p));
            int32x4x2_t(low(pairs.0), low(pairs.1))
        })
    }
    #[inline(always)]
    fn scale_high(self, pairs: int32x4x2_t) -> int32x4x2_t {
        op!(int32x4x2_t(vshrq_n_s32::<16>(pairs.0), vshrq_n_s32::<16>(pairs.1)))
    }

    #[inline(always)]
    unsafe fn dot32(self, q: &[int32x4x2_t; 8], max: i32, a: *const i8, init: int32x4x2_t) -> int32x4x2_t {
        op!(self.i_add(init, self.dot(q, 0, 8, max, a)))
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
        op!({
            let dot = self.dot(q, FIRST, N, max, a);
            both!(int32x4x2_t, vmlaq_s32, acc, dot, scale)
        })
    }
}
