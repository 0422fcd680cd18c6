//! Single instructions: those without a stable intrinsic in the oldest supported compiler, and those whose intrinsic is
//! compiled to something worse.

use std::arch::aarch64::*;
use std::arch::asm;

/// Defines functions of one instruction from registers to a register: either a new one or, behind `acc`, a changed one.
macro_rules! instructions {
    ($($(#[$doc:meta])* $features:literal $name:ident($($acc:ident)?; $($arg:ident: $type:ty),*) -> $out:ty = $text:literal;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            #[target_feature(enable = $features)]
            pub(super) fn $name($($acc: $out,)? $($arg: $type),*) -> $out {
                instructions!(@body $($acc)?; $out, $text, $($arg),*)
            }
        )*
    };
    (@body $acc:ident; $out:ty, $text:literal, $($arg:ident),*) => {{
        let mut out = $acc;
        // SAFETY: it reads and writes the registers that are named, and the CPU has the function's features.
        unsafe {
            asm!($text, out = inout(vreg) out, $($arg = in(vreg) $arg,)*
                options(pure, nomem, nostack, preserves_flags));
        }
        out
    }};
    (@body ; $out:ty, $text:literal, $($arg:ident),*) => {{
        let out: $out;
        // SAFETY: it reads and writes the registers that are named, and the CPU has the function's features.
        unsafe {
            asm!($text, out = lateout(vreg) out, $($arg = in(vreg) $arg,)*
                options(pure, nomem, nostack, preserves_flags));
        }
        out
    }};
}

instructions! {
    /// The low four halves of `x` as floats (`vcvt_f32_f16`).
    "neon" fcvtl(; x: uint16x8_t) -> float32x4_t = "fcvtl {out:v}.4s, {x:v}.4h";
    /// The high four halves of `x` as floats (`vcvt_high_f32_f16`).
    "neon" fcvtl2(; x: uint16x8_t) -> float32x4_t = "fcvtl2 {out:v}.4s, {x:v}.8h";

    // Of the intrinsics of these the compiler moves the halving out of the loop over columns, and so makes 32 registers
    // of the 16 that hold a tile's weights.
    /// Products of the low eight bytes (`vmull_s8`).
    "neon" smull(; w: int8x16_t, a: int8x16_t) -> int16x8_t = "smull {out:v}.8h, {w:v}.8b, {a:v}.8b";
    /// Products of the high eight bytes (`vmull_high_s8`).
    "neon" smull2(; w: int8x16_t, a: int8x16_t) -> int16x8_t = "smull2 {out:v}.8h, {w:v}.16b, {a:v}.16b";
    /// Adds the products of the low eight bytes (`vmlal_s8`).
    "neon" smlal(acc; w: int8x16_t, a: int8x16_t) -> int16x8_t = "smlal {out:v}.8h, {w:v}.8b, {a:v}.8b";
    /// Adds the products of the high eight bytes (`vmlal_high_s8`).
    "neon" smlal2(acc; w: int8x16_t, a: int8x16_t) -> int16x8_t = "smlal2 {out:v}.8h, {w:v}.16b, {a:v}.16b";

    /// Adds to the 2 by 2 products of `acc` those of two rows of `w` with two columns of `a`, eight signed bytes each: row
    /// `i` with column `j` in lane `2i + j` (`vmmlaq_s32`).
    "neon,i8mm" smmla(acc; w: int8x16_t, a: int8x16_t) -> int32x4_t = "smmla {out:v}.4s, {w:v}.16b, {a:v}.16b";
}

/// Adds to each 32-bit lane of `acc` the products of its four signed bytes in `w` with the four of lane `LANE` of `a`
/// (`vdotq_laneq_s32`).
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) fn sdot<const LANE: i32>(acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    let mut out = acc;
    // SAFETY: it reads and writes the registers that are named, and the CPU has `dotprod`.
    unsafe {
        asm!("sdot {out:v}.4s, {w:v}.16b, {a:v}.4b[{lane}]", out = inout(vreg) out, w = in(vreg) w, a = in(vreg) a,
            lane = const LANE, options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// Asks for the cache line at `p`, which may be any address (`_prefetch`).
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn prfm(p: *const u8) {
    // SAFETY: a prefetch of an address that cannot be read does nothing.
    unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags)) }
}
