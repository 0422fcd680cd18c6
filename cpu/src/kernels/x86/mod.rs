//! The vector types of x86-64.

mod avx2;
mod avx512;
mod vnni256;

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
