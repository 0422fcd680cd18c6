//! VNNI on 256-bit registers: 8 rows a vector, byte products straight to 32 bits. AVX-512 has 32 registers for it, and
//! AVX-VNNI, on CPUs without AVX-512, 16.

use std::arch::x86_64::*;

use super::{Avx2, dpwssd_256, dpwssd_avx, fits_16_bits, run_of_pairs};
use crate::kernels::simd::{Simd, four};

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

/// What is the same on AVX2.
macro_rules! same_as_avx2 {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $ty),*) -> $ret {
                self.0.$name($($arg),*)
            }
        )*
    };
}

/// The loads and stores that are the same on AVX2.
macro_rules! same_as_avx2_unsafe {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            #[inline(always)]
            unsafe fn $name(self, $($arg: $ty),*) -> $ret {
                op!(self.0.$name($($arg),*))
            }
        )*
    };
}

/// A token whose instruction set adds the two VNNI instructions to AVX2's.
macro_rules! vnni256 {
    ($(#[$doc:meta])* $name:ident: [$($feature:tt)*], $registers:literal, $dpbusd:ident, $dpwssd:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(Avx2);

        impl $name {
            pub(crate) fn new() -> Option<$name> {
                if $(is_x86_feature_detected!($feature))&&* { Avx2::new().map($name) } else { None }
            }
        }

        impl Simd for $name {
            const LANES: usize = 8;
            const REGISTERS: usize = $registers;
            type F = __m256;
            type I = __m256i;

            same_as_avx2! {
                fn f_splat(x: f32) -> __m256;
                fn f_add(a: __m256, b: __m256) -> __m256;
                fn f_mul(a: __m256, b: __m256) -> __m256;
                fn f_fma(a: __m256, b: __m256, c: __m256) -> __m256;
                fn f_from_i(a: __m256i) -> __m256;
                fn f_select_lt(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256;
                fn f_max(a: __m256, b: __m256) -> __m256;
                fn f_max_of_lanes(a: __m256) -> f32;
                fn f_add_exponent(y: __m256, n: __m256) -> __m256;
                fn strided_sum(v: &[__m256]) -> f32;
                fn prefetch(p: *const u8) -> ();
                fn i_splat(x: i32) -> __m256i;
                fn i_and(a: __m256i, b: __m256i) -> __m256i;
                fn i_or(a: __m256i, b: __m256i) -> __m256i;
                fn i_add(a: __m256i, b: __m256i) -> __m256i;
                fn i_sub(a: __m256i, b: __m256i) -> __m256i;
                fn i_mul(a: __m256i, b: __m256i) -> __m256i;
                fn lookup(table: &[u8; 16], q: __m256i) -> __m256i;
            }
            same_as_avx2_unsafe! {
                fn f_load(p: *const f32) -> __m256;
                fn f_load_f16(p: *const u16) -> __m256;
                fn f_load_bf16(p: *const u16) -> __m256;
                fn f_store(p: *mut f32, x: __m256) -> ();
                fn store_trees(v: [__m256; 4], out: *mut f32) -> ();
                fn i_load(p: *const u8) -> __m256i;
                fn i_load_u8(p: *const u8) -> __m256i;
                fn i_load_i8(p: *const i8) -> __m256i;
                fn gather(table: &[u32], index: __m256i) -> __m256i;
                fn pairs_u8(p: *const u8) -> __m256i;
                fn pairs_i8(p: *const u8) -> __m256i;
            }

            #[inline(always)]
            fn i_shl<const N: u32>(self, a: __m256i) -> __m256i {
                self.0.i_shl::<N>(a)
            }
            #[inline(always)]
            fn i_shr<const N: u32>(self, a: __m256i) -> __m256i {
                self.0.i_shr::<N>(a)
            }
            #[inline(always)]
            fn madd_pairs(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
                op!($dpwssd(acc, w, a))
            }
            // A factor fills its lane, for the 32-bit multiply behind the dot product.
            #[inline(always)]
            fn scale_low(self, pairs: __m256i) -> __m256i {
                op!(_mm256_srai_epi32::<16>(_mm256_slli_epi32::<16>(pairs)))
            }
            #[inline(always)]
            fn scale_high(self, pairs: __m256i) -> __m256i {
                op!(_mm256_srai_epi32::<16>(pairs))
            }
            #[inline(always)]
            unsafe fn dot32(self, q: &[__m256i; 8], _max: i32, a: *const i8, init: __m256i) -> __m256i {
                op!({
                    let mut sum = init;
                    for (s, q) in q.iter().enumerate() {
                        sum = $dpbusd(sum, *q, _mm256_set1_epi32(four(a.add(4 * s))));
                    }
                    sum
                })
            }
            #[inline(always)]
            unsafe fn dot_scaled<const FIRST: usize, const N: usize>(
                self,
                q: &[__m256i; 8],
                max: i32,
                a: *const i8,
                scale: __m256i,
                acc: __m256i,
            ) -> __m256i {
                op!({
                    let run = run_of_pairs(N, max);
                    // The factor beside a zero: the sums' upper halves are but their signs.
                    let factor = _mm256_and_si256(scale, _mm256_set1_epi32(0xffff));
                    let mut acc = acc;
                    let mut first = 0;
                    while first < N {
                        let mut sum = _mm256_setzero_si256();
                        for s in first..first + run {
                            sum = $dpbusd(sum, q[FIRST + s], _mm256_set1_epi32(four(a.add(4 * s))));
                        }
                        acc = if fits_16_bits(run, max) {
                            $dpwssd(acc, sum, factor)
                        } else {
                            _mm256_add_epi32(acc, _mm256_mullo_epi32(sum, scale))
                        };
                        first += run;
                    }
                    acc
                })
            }
        }
    };
}

vnni256! {
    /// Proof that the CPU has AVX-VNNI, and what [`Avx2`] asks for.
    AvxVnni: ["avxvnni"], 16, _mm256_dpbusd_avx_epi32, dpwssd_avx
}
vnni256! {
    /// Proof that the CPU has AVX-512 F, BW, VL and VNNI, and what [`Avx2`] asks for.
    Vnni256: ["avx512f" "avx512bw" "avx512vl" "avx512vnni"], 32, _mm256_dpbusd_epi32, dpwssd_256
}
