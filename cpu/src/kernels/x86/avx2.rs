//! AVX2 with FMA and F16C: 8 rows a vector, byte products through 16-bit sums.

use std::arch::x86_64::*;

use crate::kernels::simd::{Simd, four};

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn new() -> Option<Avx2> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Avx2(()))
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

/// The balanced sum of eight lanes.
///
/// # Safety
/// The CPU has AVX.
#[inline(always)]
pub(super) unsafe fn tree(sum: __m256) -> f32 {
    op!({
        // Neighbours are added, then pairs of neighbours.
        let sum = _mm256_hadd_ps(sum, sum);
        let sum = _mm256_hadd_ps(sum, sum);
        let high = _mm256_extractf128_ps::<1>(sum);
        _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(sum), high))
    })
}

/// The balanced sums of four vectors.
///
/// # Safety
/// The CPU has AVX.
#[inline(always)]
pub(super) unsafe fn trees(v: [__m256; 4]) -> __m128 {
    op!({
        let fours = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours))
    })
}

impl Avx2 {
    /// Byte products summed in pairs to 16 bits, over `q[first..first + n]`; the sum must fit 16 bits.
    ///
    /// # Safety
    /// `4 * n` bytes are readable at `a`.
    #[inline(always)]
    unsafe fn sum16(self, q: &[__m256i; 8], first: usize, n: usize, a: *const i8) -> __m256i {
        op!({
            let mut sum = _mm256_maddubs_epi16(q[first], _mm256_set1_epi32(four(a)));
            for s in 1..n {
                let a = _mm256_set1_epi32(four(a.add(4 * s)));
                sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(q[first + s], a));
            }
            sum
        })
    }

    /// Products of one vector of signed weights: magnitudes times activations with the weights' signs, of which a pair is at
    /// most 2 * 128 * 127.
    ///
    /// # Safety
    /// 4 bytes are readable at `a`.
    #[inline(always)]
    unsafe fn dot4_signed(self, q: __m256i, a: *const i8) -> __m256i {
        op!({
            let a = _mm256_sign_epi8(_mm256_set1_epi32(four(a)), q);
            _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(q), a), _mm256_set1_epi16(1))
        })
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const SIGNED: bool = true;
    type F = __m256;
    type I = __m256i;

    #[inline(always)]
    fn f_splat(self, x: f32) -> __m256 {
        op!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn f_add(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn f_mul(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn f_fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        op!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn f_from_i(self, a: __m256i) -> __m256 {
        op!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    unsafe fn f_load(self, p: *const f32) -> __m256 {
        op!(_mm256_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn f_load_f16(self, p: *const u16) -> __m256 {
        op!(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn f_load_bf16(self, p: *const u16) -> __m256 {
        op!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))))
    }
    #[inline(always)]
    unsafe fn f_store(self, p: *mut f32, x: __m256) {
        op!(_mm256_storeu_ps(p, x))
    }
    #[inline(always)]
    fn f_select_lt(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        op!(_mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)))
    }
    #[inline(always)]
    fn f_max(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn f_max_of_lanes(self, a: __m256) -> f32 {
        op!({
            let m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let m = _mm_max_ps(m, _mm_movehl_ps(m, m));
            _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)))
        })
    }
    #[inline(always)]
    fn f_add_exponent(self, y: __m256, n: __m256) -> __m256 {
        op!({
            let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), n))
        })
    }
    #[inline(always)]
    fn strided_sum(self, v: &[__m256]) -> f32 {
        op!({
            let mut sum = _mm256_setzero_ps();
            for v in v {
                sum = _mm256_add_ps(sum, *v);
            }
            tree(sum)
        })
    }
    #[inline(always)]
    unsafe fn store_trees(self, v: [__m256; 4], out: *mut f32) {
        op!(_mm_storeu_ps(out, trees(v)))
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        op!(_mm_prefetch::<_MM_HINT_T0>(p.cast()))
    }
    #[inline(always)]
    fn i_splat(self, x: i32) -> __m256i {
        op!(_mm256_set1_epi32(x))
    }
    #[inline(always)]
    fn i_and(self, a: __m256i, b: __m256i) -> __m256i {
        op!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn i_or(self, a: __m256i, b: __m256i) -> __m256i {
        op!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn without_128(self, q: __m256i) -> __m256i {
        op!(_mm256_xor_si256(q, _mm256_set1_epi8(i8::MIN)))
    }
    #[inline(always)]
    fn i_sub(self, a: __m256i, b: __m256i) -> __m256i {
        op!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn i_shl<const N: u32>(self, a: __m256i) -> __m256i {
        op!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32)))
    }
    #[inline(always)]
    fn i_shr<const N: u32>(self, a: __m256i) -> __m256i {
        op!(_mm256_srl_epi32(a, _mm_cvtsi32_si128(N as i32)))
    }
    #[inline(always)]
    fn i_add(self, a: __m256i, b: __m256i) -> __m256i {
        op!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn i_mul(self, a: __m256i, b: __m256i) -> __m256i {
        op!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], q: __m256i) -> __m256i {
        op!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, q)
        })
    }
    #[inline(always)]
    unsafe fn i_load(self, p: *const u8) -> __m256i {
        op!(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn gather(self, table: &[u32], index: __m256i) -> __m256i {
        op!(_mm256_i32gather_epi32::<4>(table.as_ptr().cast(), index))
    }
    #[inline(always)]
    unsafe fn i_load_u8(self, p: *const u8) -> __m256i {
        op!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())))
    }
    #[inline(always)]
    unsafe fn i_load_i8(self, p: *const i8) -> __m256i {
        op!(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())))
    }
    #[inline(always)]
    unsafe fn pairs_u8(self, p: *const u8) -> __m256i {
        op!(_mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    unsafe fn pairs_i8(self, p: *const u8) -> __m256i {
        op!(_mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())))
    }
    #[inline(always)]
    fn madd_pairs(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        op!(_mm256_add_epi32(acc, _mm256_madd_epi16(w, a)))
    }

    // A factor stands in both halves of a lane, for `madd` over 16-bit pair sums.
    #[inline(always)]
    fn scale_low(self, pairs: __m256i) -> __m256i {
        op!(_mm256_blend_epi16::<0b1010_1010>(pairs, _mm256_slli_epi32::<16>(pairs)))
    }
    #[inline(always)]
    fn scale_high(self, pairs: __m256i) -> __m256i {
        op!(_mm256_blend_epi16::<0b0101_0101>(pairs, _mm256_srli_epi32::<16>(pairs)))
    }

    #[inline(always)]
    unsafe fn dot32(self, q: &[__m256i; 8], max: i32, a: *const i8, init: __m256i) -> __m256i {
        op!({
            let ones = _mm256_set1_epi16(1);
            if max <= 15 {
                // 8 pair sums of at most 2 * 15 * 127: 30480.
                _mm256_add_epi32(init, _mm256_madd_epi16(self.sum16(q, 0, 8, a), ones))
            } else if max <= 31 {
                // 4 pair sums of at most 2 * 31 * 127: 31496.
                let first = _mm256_madd_epi16(self.sum16(q, 0, 4, a), ones);
                let second = _mm256_madd_epi16(self.sum16(q, 4, 4, a.add(16)), ones);
                _mm256_add_epi32(init, _mm256_add_epi32(first, second))
            } else {
                let mut sum = init;
                for (s, q) in q.iter().enumerate() {
                    sum = _mm256_add_epi32(sum, self.dot4_signed(*q, a.add(4 * s)));
                }
                sum
            }
        })
    }

    #[inline(always)]
    unsafe fn dots32_offset<const C: usize>(
        self,
        q: &[__m256i; 8],
        a: [*const i8; C],
        _offsets: [i32; C],
    ) -> [__m256i; C] {
        op!({
            let (ones, flip) = (_mm256_set1_epi16(1), _mm256_set1_epi8(-128));
            let mut sums = [_mm256_setzero_si256(); C];
            for (s, q) in q.iter().enumerate() {
                // A quant's sign moves to the activation. A pair is at most 2 * 127 * 127: 32258.
                let quants = _mm256_xor_si256(*q, flip);
                let magnitudes = _mm256_abs_epi8(quants);
                for (sum, a) in sums.iter_mut().zip(a) {
                    let signed = _mm256_sign_epi8(_mm256_set1_epi32(four(a.add(4 * s))), quants);
                    let pairs = _mm256_maddubs_epi16(magnitudes, signed);
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
            sums
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
            // As many 16-bit pair sums as fit: 2 * max * 127 each, and 32767 in all.
            let run = if max <= 15 {
                8
            } else if max <= 31 {
                4
            } else if max <= 64 {
                2
            } else {
                1
            };
            let run = if run < N { run } else { N };
            let mut acc = acc;
            let mut s = 0;
            while s < N {
                let sum = self.sum16(q, FIRST + s, run, a.add(4 * s));
                acc = _mm256_add_epi32(acc, _mm256_madd_epi16(sum, scale));
                s += run;
            }
            acc
        })
    }
}
