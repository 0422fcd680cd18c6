//! The vector types of AArch64.
//!
//! A register has four 32-bit lanes. A vector here is a pair of them, eight rows, for three reasons:
//! - 32 weights of eight rows are 16 of the 32 registers; the rest is for one column's activations and sums, scales and
//!   masks. 16 rows would take all 32 for the weights alone.
//! - What a column loads for 32 weights (2 registers of activations, a scale, a sum) serves 16 `sdot`, not 8.
//! - A tile's 8 columns share the unpacking, some 24 instructions. Their chains live in L1: 2 loads and 2 stores of a
//!   register a column, which those 16 `sdot` hide.
//! - The contract's eight partial sums are one vector, so float rows need no kernel of their own.
//!
//! Instructions that intrinsics do not give are in [`asm`].

/// The part of [`Simd`](super::simd::Simd) that a token has from the one that it wraps: all but the dot products.
macro_rules! inherited {
    () => {
        const LANES: usize = 8;
        const SIGNED: bool = true;
        type F = float32x4x2_t;
        type I = int32x4x2_t;

        $crate::kernels::aarch64::inherited! {
            fn f_splat(x: f32) -> Self::F;
            fn f_add(a: Self::F, b: Self::F) -> Self::F;
            fn f_mul(a: Self::F, b: Self::F) -> Self::F;
            fn f_fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
            fn f_from_i(a: Self::I) -> Self::F;
            unsafe fn f_load(p: *const f32) -> Self::F;
            unsafe fn f_load_f16(p: *const u16) -> Self::F;
            unsafe fn f_load_bf16(p: *const u16) -> Self::F;
            unsafe fn f_store(p: *mut f32, x: Self::F) -> ();
            unsafe fn store_trees(v: [Self::F; 4], out: *mut f32) -> ();
            fn prefetch(p: *const u8) -> ();
            fn i_splat(x: i32) -> Self::I;
            fn i_and(a: Self::I, b: Self::I) -> Self::I;
            fn i_or(a: Self::I, b: Self::I) -> Self::I;
            fn i_add(a: Self::I, b: Self::I) -> Self::I;
            fn i_sub(a: Self::I, b: Self::I) -> Self::I;
            fn i_mul(a: Self::I, b: Self::I) -> Self::I;
            fn lookup(table: &[u8; 16], q: Self::I) -> Self::I;
            fn without_128(q: Self::I) -> Self::I;
            unsafe fn i_load(p: *const u8) -> Self::I;
            unsafe fn pairs_u8(p: *const u8) -> Self::I;
            unsafe fn pairs_i8(p: *const u8) -> Self::I;
            fn madd_pairs(acc: Self::I, w: Self::I, a: Self::I) -> Self::I;
            fn scale_low(pairs: Self::I) -> Self::I;
            fn scale_high(pairs: Self::I) -> Self::I;
        }

        #[inline(always)]
        fn i_shl<const N: u32>(self, a: Self::I) -> Self::I {
            self.0.i_shl::<N>(a)
        }
        #[inline(always)]
        fn i_shr<const N: u32>(self, a: Self::I) -> Self::I {
            self.0.i_shr::<N>(a)
        }
    };
    (fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty; $($rest:tt)*) => {
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $ret {
            self.0.$name($($arg),*)
        }
        $crate::kernels::aarch64::inherited! { @ $($rest)* }
    };
    (unsafe fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty; $($rest:tt)*) => {
        #[inline(always)]
        unsafe fn $name(self, $($arg: $ty),*) -> $ret {
            // SAFETY: passed on to the caller.
            unsafe { self.0.$name($($arg),*) }
        }
        $crate::kernels::aarch64::inherited! { @ $($rest)* }
    };
    (@) => {};
    (@ $($rest:tt)+) => {
        $crate::kernels::aarch64::inherited! { $($rest)+ }
    };
}
use inherited;

mod asm;
mod dotprod;
mod i8mm;
mod neon;
pub(crate) mod smmla;

pub(crate) use dotprod::DotProd;
pub(crate) use i8mm::I8mm;
pub(crate) use neon::Neon;
