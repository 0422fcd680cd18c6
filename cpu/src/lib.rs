//! The CPU backend: kernels for each instruction set, dispatch, the thread pool, the executor.

// Packing and the vector interface serve kernels of instruction sets, of which other architectures have none yet.
#![cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]

mod acts;
mod attend;
mod backend;
mod executor;
mod experts;
mod isa;
mod kernels;
mod kv;
mod linear;
pub mod math;
mod matmul;
mod memory;
mod pack;
pub mod pool;
pub mod probe;
mod profile;
mod rows;
mod slots;
mod stream;
mod weights;

pub use backend::CpuBackend;
pub use executor::CpuExecutor;
pub use isa::Isa;
pub use pool::available_threads;
