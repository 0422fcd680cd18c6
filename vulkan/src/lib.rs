//! The Vulkan backend: any GPU whose driver offers compute shaders.
//!
//! The loader is opened when a device is first asked for, and nothing is linked. Kernels are GLSL in `shaders/`, checked in
//! beside the SPIR-V that is made of them; all buffers are reached by address, so there are no descriptors. The bits are
//! those of docs/arithmetic.md.

mod backend;
mod cache;
mod device;
mod driver;
mod error;
mod executor;
mod inputs;
mod kernels;
mod kv;
mod memory;
pub mod pack;
mod record;
mod self_test;
mod shaders;
mod slots;
mod soft_fma;
mod weights;

pub use backend::{DeviceInfo, VulkanBackend, devices};
pub use device::{Gpu, Kernel};
pub use driver::DeviceKind;
pub use error::{DeviceError, OpenError};
pub use executor::VulkanExecutor;
pub use memory::Buffer;
