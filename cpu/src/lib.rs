//! The CPU backend: kernels, the thread pool, the executor.

pub mod math;
