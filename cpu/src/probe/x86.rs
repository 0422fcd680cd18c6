//! The probe's loops on x86-64.
//!
//! Each multiply-add waits for the one before it in its chain, so there are more chains than a CPU can have results under way:
//! two multipliers with a latency of 4 or 5 cycles want 8 to 10.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::{Compute, sum};
use crate::isa::Isa;

/// As many as leave room for the factors among the 16 registers of AVX2.
const CHAINS: usize = 12;

/// A loop that takes each of some chains a step further in each turn; `$macs` multiply-adds a step.
macro_rules! compute {
    (
        $name:ident, $features:literal, $chains:expr, $turns:literal, $macs:literal,
        $start:expr, $factor:expr, |$x:ident, $w:ident| $step:expr
    ) => {
        pub(super) const $name: Compute = {
            #[target_feature(enable = $features)]
            fn run(turns: u64) {
                // Values that the compiler does not know, so that it can neither foresee nor merge the chains.
                let $w = black_box($factor);
                let mut chains = black_box([$start; $chains]);
                for _ in 0..turns {
                    for chain in &mut chains {
                        let $x = *chain;
                        *chain = $step;
                    }
                }
                black_box(chains);
            }

            fn checked(turns: u64) {
                // SAFETY: the loop is handed out only where the instruction set is available.
                unsafe { run(turns) }
            }

            Compute { run: checked, turns: $turns, macs: $chains as u64 * $macs }
        };
    };
}

// AVX2 has no single instruction: as in its kernels for 4-bit weights, eight products of byte pairs are added up in 16 bits,
// then widened. A step's products do not wait for each other, so fewer chains are enough.
compute!(INT8_AVX2, "avx2", 6, 100_000, 256, _mm256_set1_epi8(3), [_mm256_set1_epi8(1); 8], |x, w| {
    let mut sum = _mm256_maddubs_epi16(w[0], x);
    for w in &w[1..] {
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(*w, x));
    }
    _mm256_add_epi32(x, _mm256_madd_epi16(sum, _mm256_set1_epi16(1)))
});
compute!(
    INT8_VNNI256,
    "avx2,avx512f,avx512vl,avx512vnni",
    CHAINS,
    400_000,
    32,
    _mm256_set1_epi8(3),
    _mm256_set1_epi8(1),
    |x, w| _mm256_dpbusd_epi32(x, w, w)
);
compute!(
    INT8_VNNI512,
    "avx512f,avx512vnni",
    CHAINS,
    400_000,
    64,
    _mm512_set1_epi8(3),
    _mm512_set1_epi8(1),
    |x, w| _mm512_dpbusd_epi32(x, w, w)
);
// x / 2 + 1/2 goes to 1, far from subnormal numbers.
compute!(F32_FMA256, "avx2,fma", CHAINS, 400_000, 8, _mm256_set1_ps(1.0), _mm256_set1_ps(0.5), |x, w| {
    _mm256_fmadd_ps(x, w, w)
});
compute!(F32_FMA512, "avx512f", CHAINS, 400_000, 16, _mm512_set1_ps(1.0), _mm512_set1_ps(0.5), |x, w| {
    _mm512_fmadd_ps(x, w, w)
});

/// Reads all words with 32-byte vectors, asking for them `ahead` bytes before their use unless that is 0; false where the
/// instruction set has none.
pub(super) fn read(isa: Isa, words: &[u64], ahead: usize) -> bool {
    #[target_feature(enable = "avx2")]
    fn read(words: &[u64], ahead: usize) -> u64 {
        if ahead == 0 {
            return sum(words, |_| {});
        }
        sum(words, |line| {
            _mm_prefetch::<_MM_HINT_T0>(line.cast::<i8>().wrapping_add(ahead));
        })
    }
    if isa == Isa::Portable || !isa.is_available() {
        return false;
    }
    // SAFETY: every other set of x86-64 includes AVX2.
    black_box(unsafe { read(words, ahead) });
    true
}
