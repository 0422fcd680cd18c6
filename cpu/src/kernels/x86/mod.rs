//! The vector types of x86-64.

mod avx2;
mod avx512;
mod vnni256;

pub(crate) use avx2::Avx2;
pub(crate) use avx512::Avx512;
pub(crate) use vnni256::{AvxVnni, Vnni256};
