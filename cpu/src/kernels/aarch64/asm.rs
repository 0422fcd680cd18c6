//! Instructions without a stable intrinsic, one function each.

use std::arch::aarch64::*;
use std::arch::asm;

/// The four halves in the low part of `x` as floats (`vcvt_f32_f16`).
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn fcvtl(x: uint16x8_t) -> float32x4_t {
    let y: float32x4_t;
    // SAFETY: a register in, a register out; part of what `neon` promises.
    unsafe {
        asm!("fcvtl {y:v}.4s, {x:v}.4h", y = lateout(vreg) y, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    y
}

/// The four halves in the high part of `x` as floats (`vcvt_high_f32_f16`).
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn fcvtl2(x: uint16x8_t) -> float32x4_t {
    let y: float32x4_t;
    // SAFETY: a register in, a register out; part of what `neon` promises.
    unsafe {
        asm!("fcvtl2 {y:v}.4s, {x:v}.8h", y = lateout(vreg) y, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    y
}

/// Asks for the cache line at `p`, which may be any address (`_prefetch`).
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn prfm(p: *const u8) {
    // SAFETY: a prefetch of an address that cannot be read does nothing.
    unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags)) }
}

/// To each 32-bit lane of `acc` the products of its four signed bytes in `w` and the four of lane `LANE` of `a`
/// (`vdotq_laneq_s32`).
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn sdot<const LANE: i32>(acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    let mut acc = acc;
    // SAFETY: registers in, a register out; the CPU has `dotprod`.
    unsafe {
        asm!("sdot {acc:v}.4s, {w:v}.16b, {a:v}.4b[{lane}]", acc = inout(vreg) acc, w = in(vreg) w, a = in(vreg) a,
            lane = const LANE, options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// Adds to the 2 by 2 products of `acc` those of two rows of `w` with two columns of `a`, eight signed bytes each: row `i` with
/// column `j` in lane `2i + j` (`vmmlaq_s32`).
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(super) fn smmla(acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    let mut acc = acc;
    // SAFETY: registers in, a register out; the CPU has `i8mm`.
    unsafe {
        asm!("smmla {acc:v}.4s, {w:v}.16b, {a:v}.16b", acc = inout(vreg) acc, w = in(vreg) w, a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}
