//! The Vulkan backend: any GPU whose driver offers compute shaders.
//!
//! The loader is opened when a device is first asked for, and nothing is linked. Kernels are GLSL in `shaders/`, checked in
//! beside the SPIR-V that is made of them; all buffers are reached by address, so there are no descriptors. The bits are
//! those of docs/arithmetic.md.

mod cache;
mod device;
mod driver;
mod error;
mod memory;
mod shaders;

pub use device::{Gpu, Kernel};
pub use driver::DeviceKind;
pub use error::{DeviceError, OpenError};
pub use memory::Buffer;
