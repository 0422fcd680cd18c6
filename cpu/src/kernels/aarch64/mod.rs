//! The vector types of AArch64.
//!
//! A register has four 32-bit lanes. A vector here is a pair of them, eight rows, for three reasons:
//! - 32 weights of eight rows are 16 registers and a tile's 4 columns have 8 of sums, which leaves 8 of the 32 for
//!   activations, scales and masks; 16 rows would take all 32 for the weights alone.
//! - What a column loads for 32 weights (2 registers of activations, a scale, a sum) serves 16 `sdot`, not 8.
//! - The contract's eight partial sums are one vector, so float rows need no kernel of their own.
//!
//! Intrinsics that the oldest supported compiler does not have are single instructions in [`asm`].

mod asm;
mod dotprod;
mod i8mm;
mod neon;

pub(crate) use dotprod::DotProd;
pub(crate) use i8mm::I8mm;
pub(crate) use neon::Neon;
