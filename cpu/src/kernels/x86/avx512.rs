//! AVX-512 VNNI on 512-bit registers: 16 rows a vector.

use std::arch::x86_64::*;

use super::Vnni256;
use super::avx2::{tree, trees};
use super::{dpwssd_512, fits_16_bits, run_of_pairs};
use crate::kernels::simd::{Simd, four};

/// Proof that the CPU has what [`Vnni256`] asks for and AVX-512 DQ, at full width.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn new() -> Option<Avx512> {
        (is_x86_feature_detected!("avx512dq") && Vnni256::new().is_some()).then_some(Avx512(()))
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

impl Simd for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    fn f_splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn f_add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn f_mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn f_fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn f_from_i(self, a: __m512i) -> __m512 {
        op!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    unsafe fn f_load(self, p: *const f32) -> __m512 {
        op!(_mm512_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn f_load_eight(self, p: *const f32) -> __m512 {
        op!(_mm512_broadcast_f32x8(_mm256_loadu_ps(p)))
    }
    #[inline(always)]
    unsafe fn f_load_f16(self, p: *const u16) -> __m512 {
        op!(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    unsafe fn f_load_bf16(self, p: *const u16) -> __m512 {
        op!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))))
    }
    #[inline(always)]
    unsafe fn f_store(self, p: *mut f32, x: __m512) {
        op!(_mm512_storeu_ps(p, x))
    }
    #[inline(always)]
    fn f_select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        op!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x))
    }
    #[inline(always)]
    fn f_max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn f_max_of_lanes(self, a: __m512) -> f32 {
        op!({
            let m = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let m = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps::<1>(m));
            let m = _mm_max_ps(m, _mm_movehl_ps(m, m));
            _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)))
        })
    }
    #[inline(always)]
    fn f_add_exponent(self, y: __m512, n: __m512) -> __m512 {
        op!({
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), n))
        })
    }
    #[inline(always)]
    fn strided_sum(self, v: &[__m512]) -> f32 {
        op!({
            let mut sum = _mm256_setzero_ps();
            for v in v {
                sum = _mm256_add_ps(sum, _mm512_castps512_ps256(*v));
                sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps::<1>(*v));
            }
            tree(sum)
        })
    }
    #[inline(always)]
    unsafe fn store_trees(self, [a, b, c, d]: [__m512; 4], out: *mut f32) {
        op!({
            let low = |v| _mm512_castps512_ps256(v);
            let high = |v| _mm512_extractf32x8_ps::<1>(v);
            _mm_storeu_ps(out, trees([low(a), low(b), low(c), low(d)]));
            _mm_storeu_ps(out.add(4), trees([high(a), high(b), high(c), high(d)]));
        })
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        op!(_mm_prefetch::<_MM_HINT_T0>(p.cast()))
    }
    #[inline(always)]
    fn i_splat(self, x: i32) -> __m512i {
        op!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn i_and(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn i_or(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn i_sub(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn i_shl<const N: u32>(self, a: __m512i) -> __m512i {
        op!(_mm512_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn i_shr<const N: u32>(self, a: __m512i) -> __m512i {
        op!(_mm512_srli_epi32::<N>(a))
    }
    #[inline(always)]
    fn i_add(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn i_mul(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], q: __m512i) -> __m512i {
        op!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, q)
        })
    }
    #[inline(always)]
    unsafe fn i_load(self, p: *const u8) -> __m512i {
        op!(_mm512_loadu_si512(p.cast()))
    }
    #[inline(always)]
    unsafe fn gather(self, table: &[u32], index: __m512i) -> __m512i {
        op!(_mm512_i32gather_epi32::<4>(index, table.as_ptr().cast()))
    }
    #[inline(always)]
    unsafe fn i_load_u8(self, p: *const u8) -> __m512i {
        op!(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn i_load_i8(self, p: *const i8) -> __m512i {
        op!(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn pairs_u8(self, p: *const u8) -> __m512i {
        op!(_mm512_cvtepu8_epi16(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    unsafe fn pairs_i8(self, p: *const u8) -> __m512i {
        op!(_mm512_cvtepi8_epi16(_mm256_loadu_si256(p.cast())))
    }
    #[inline(always)]
    fn madd_pairs(self, acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
        op!(dpwssd_512(acc, w, a))
    }
    // A factor fills its lane, for the 32-bit multiply behind the dot product.
    #[inline(always)]
    fn scale_low(self, pairs: __m512i) -> __m512i {
        op!(_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(pairs)))
    }
    #[inline(always)]
    fn scale_high(self, pairs: __m512i) -> __m512i {
        op!(_mm512_srai_epi32::<16>(pairs))
    }
    #[inline(always)]
    unsafe fn dot32(self, q: &[__m512i; 8], _max: i32, a: *const i8, init: __m512i) -> __m512i {
        op!({
            let mut sum = init;
            for (s, q) in q.iter().enumerate() {
                sum = _mm512_dpbusd_epi32(sum, *q, _mm512_set1_epi32(four(a.add(4 * s))));
            }
            sum
        })
    }
    #[inline(always)]
    unsafe fn dot_scaled<const FIRST: usize, const N: usize>(
        self,
        q: &[__m512i; 8],
        max: i32,
        a: *const i8,
        scale: __m512i,
        acc: __m512i,
    ) -> __m512i {
        op!({
            let run = run_of_pairs(N, max);
            // The factor beside a zero: the sums' upper halves are but their signs.
            let factor = _mm512_and_si512(scale, _mm512_set1_epi32(0xffff));
            let mut acc = acc;
            let mut first = 0;
            while first < N {
                let mut sum = _mm512_setzero_si512();
                for s in first..first + run {
                    sum = _mm512_dpbusd_epi32(sum, q[FIRST + s], _mm512_set1_epi32(four(a.add(4 * s))));
                }
                acc = if fits_16_bits(run, max) {
                    dpwssd_512(acc, sum, factor)
                } else {
                    _mm512_add_epi32(acc, _mm512_mullo_epi32(sum, scale))
                };
                first += run;
            }
            acc
        })
    }
}
