//! The vector types of x86-64.

mod avx2;
mod avx512;
mod vnni256;

use std::arch::x86_64::{__m256i, __m512i};

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
pub(crate) use vnni256::{AvxVnni, Vnni256};

/// Whether the sum of `4 * n` weights of at most `max` times activations of at most 127 fits 16 bits with its sign.
const fn fits_16_bits(n: usize, max: i32) -> bool {
    4 * n as i32 * max * 127 <= i16::MAX as i32
}

/// Vectors, of `n`, whose dot products VNNI sums up before a factor: as many as fit 16 bits, since then one instruction
/// multiplies and adds, where 32-bit products take two and a sum one. All, if not even four fit.
const fn run_of_pairs(n: usize, max: i32) -> usize {
    if !fits_16_bits(n, max) && fits_16_bits(4, max) { 4 } else { n }
}

/// `vpdpwssd` in assembly, since LLVM takes the intrinsic apart into a product and a sum: two instructions on the ports that
/// bound the kernels.
macro_rules! dpwssd {
    ($name:ident: $vector:ty, $class:ident, $feature:literal, $encoding:literal) => {
        /// `acc` plus the products of both 16-bit pairs of each lane.
        #[inline]
        #[target_feature(enable = $feature)]
        fn $name(mut acc: $vector, w: $vector, a: $vector) -> $vector {
            // SAFETY: the function's features have the instruction, which has no effect but its result.
            unsafe {
                std::arch::asm!(
                    concat!($encoding, "vpdpwssd {acc}, {w}, {a}"),
                    acc = inout($class) acc,
                    w = in($class) w,
                    a = in($class) a,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            acc
        }
    };
}

dpwssd!(dpwssd_512: __m512i, zmm_reg, "avx512f,avx512vnni", "");
dpwssd!(dpwssd_256: __m256i, ymm_reg, "avx512f,avx512vl,avx512vnni", "");
dpwssd!(dpwssd_avx: __m256i, ymm_reg, "avx2,avxvnni", "{{vex}} ");
