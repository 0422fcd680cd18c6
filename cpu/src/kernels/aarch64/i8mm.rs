//! NEON with the 8-bit matrix product extension: 2 rows by 2 columns an instruction, 8 weights deep.

use std::arch::is_aarch64_feature_detected;

use super::DotProd;

/// Proof that the CPU has `i8mm`, and what [`DotProd`] asks for.
#[derive(Clone, Copy)]
pub(crate) struct I8mm(DotProd);

impl I8mm {
    pub(crate) fn new() -> Option<I8mm> {
        if is_aarch64_feature_detected!("i8mm") { DotProd::new().map(I8mm) } else { None }
    }
}
