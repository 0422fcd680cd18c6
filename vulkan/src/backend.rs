//! A Vulkan device as a backend: it runs every step over every format.

use std::sync::Arc;

use llamay_formats::Format;
use llamay_plan::{
    Backend, ExecError, Executor, Gating, Index, LoadOptions, Nonlinearity, NormKind, Op, Plan, Progress,
    Refusal, Scoring, WeightSource,
};

use crate::driver::{DeviceKind, Driver};
use crate::executor::VulkanExecutor;
use crate::{Gpu, OpenError, self_test};

/// A device of a Vulkan driver, found to compute as it should.
pub struct VulkanBackend {
    gpu: Gpu,
}

/// What a listing says of a device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number, as in `vulkan:0`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// What it is built as.
    pub kind: DeviceKind,
    /// The driver and its version.
    pub driver: String,
    /// The version of Vulkan.
    pub api: String,
    /// Bytes of its own memory.
    pub memory: u64,
    /// Bytes that can still be allocated, where the driver says so.
    pub budget: Option<u64>,
    /// Lanes of a subgroup.
    pub subgroup: u32,
    /// What matters to the kernels, and whether the device has it.
    pub features: Vec<(&'static str, bool)>,
    /// Whether it computes as it should, and else what it lacks or gets wrong.
    pub self_test: Result<(), String>,
}

/// All devices of all drivers, each tested.
///
/// # Errors
/// No loader, or one that fails.
pub fn devices() -> Result<Vec<DeviceInfo>, OpenError> {
    let driver = Driver::open()?;
    let info = |(index, device): (usize, crate::driver::Physical)| DeviceInfo {
        index,
        name: device.name.clone(),
        kind: device.kind,
        driver: device.driver.clone(),
        api: {
            use ash::vk::{api_version_major, api_version_minor, api_version_patch};
            let v = device.api;
            format!("{}.{}.{}", api_version_major(v), api_version_minor(v), api_version_patch(v))
        },
        memory: device.memory_bytes(),
        budget: device.budget(&driver.instance),
        subgroup: device.subgroup,
        features: vec![
            ("buffer addresses", device.buffer_address),
            ("integer dot product", device.integer_dot),
            ("integer dot product in hardware", device.dot_accelerated),
            ("doubles", device.doubles),
            ("memory budget", device.has_budget),
            ("subnormal numbers", device.float.denorm_preserve),
        ],
        self_test: Gpu::of(Arc::clone(&driver), index, device)
            .and_then(|gpu| self_test::run(&gpu))
            .map_err(|why| why.to_string()),
    };
    Ok(driver.physical_devices()?.into_iter().enumerate().map(info).collect())
}

impl VulkanBackend {
    /// The device of this number; or without one the best that there is, software last.
    ///
    /// # Errors
    /// No loader, driver or such device; one that lacks something, or computes something else than it should.
    pub fn open(index: Option<usize>) -> Result<VulkanBackend, OpenError> {
        VulkanBackend::of(Gpu::open(index)?)
    }

    /// The best GPU, which software is not.
    ///
    /// # Errors
    /// As [`VulkanBackend::open`].
    pub fn open_gpu() -> Result<VulkanBackend, OpenError> {
        let gpu = Gpu::open(None)?;
        match gpu.kind() {
            DeviceKind::Cpu => Err(OpenError::OnlySoftware(gpu.name().to_owned())),
            _ => VulkanBackend::of(gpu),
        }
    }

    /// The backend of an opened device.
    ///
    /// # Errors
    /// A device that computes something else than it should.
    pub fn of(gpu: Gpu) -> Result<VulkanBackend, OpenError> {
        self_test::run(&gpu)?;
        Ok(VulkanBackend { gpu })
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
}

impl Backend for VulkanBackend {
    fn name(&self) -> String {
        format!("vulkan:{}", self.gpu.inner.index)
    }

    fn describe(&self) -> String {
        format!("Vulkan ({})", self.gpu.name())
    }

    fn supports(&self, op: &Op, formats: &[Format]) -> Result<(), Refusal> {
        // All fields and formats are named, so that a new one does not compile until somebody has looked here.
        for format in formats {
            match format {
                Format::F32
                | Format::F16
                | Format::BF16
                | Format::F64
                | Format::I8
                | Format::I16
                | Format::I32
                | Format::I64
                | Format::Q4_0
                | Format::Q4_1
                | Format::Q5_0
                | Format::Q5_1
                | Format::Q8_0
                | Format::Q8_1
                | Format::Q2_K
                | Format::Q3_K
                | Format::Q4_K
                | Format::Q5_K
                | Format::Q6_K
                | Format::Q8_K
                | Format::IQ1_S
                | Format::IQ1_M
                | Format::IQ2_XXS
                | Format::IQ2_XS
                | Format::IQ2_S
                | Format::IQ3_XXS
                | Format::IQ3_S
                | Format::IQ4_NL
                | Format::IQ4_XS
                | Format::TQ1_0
                | Format::TQ2_0
                | Format::MXFP4
                | Format::NVFP4
                | Format::Q1_0 => {}
            }
        }
        let known = |f: &Nonlinearity| match f {
            Nonlinearity::Silu
            | Nonlinearity::GeluTanh
            | Nonlinearity::Gelu
            | Nonlinearity::Relu
            | Nonlinearity::ReluSquared
            | Nonlinearity::Sigmoid => Ok(()),
        };
        match op {
            Op::Embed { weight: _, index: Index::Token | Index::Position, out: _, scale: _ }
            | Op::Norm {
                x: _,
                kind: NormKind::Rms | NormKind::Layer,
                weight: _,
                bias: _,
                eps: _,
                heads: _,
                out: _,
            }
            | Op::Linear { x: _, projections: _ }
            | Op::Rope { x: _, heads: _, head_dim: _, rope: _ }
            | Op::Attend {
                q: _,
                k: _,
                v: _,
                out: _,
                kv: _,
                heads: _,
                scale: _,
                window: _,
                softcap: _,
                sinks: _,
            }
            | Op::Gate { gate: _, up: _, out: _, f: Gating::ClippedSwiglu }
            | Op::Add { x: _, y: _, scale: _, out: _ }
            | Op::Scale { x: _, scale: _, out: _ }
            | Op::Softcap { x: _, cap: _, out: _ }
            | Op::Route {
                x: _,
                bias: _,
                scoring: Scoring::Softmax | Scoring::SoftmaxOfChosen | Scoring::Sigmoid,
                normalize: _,
                scale: _,
                chosen: _,
                weights: _,
            }
            | Op::ExpertLinear { x: _, cols: _, chosen: _, projections: _ }
            | Op::Combine { x: _, weights: _, out: _ }
            | Op::Select { slots: _ } => Ok(()),
            Op::Gate { gate: _, up: _, out: _, f: Gating::Product(f) } | Op::Activate { x: _, f, out: _ } => {
                known(f)
            }
        }
    }

    fn supports_in(&self, plan: &Plan, op: &Op) -> Result<(), Refusal> {
        // What kernels hold in shared memory: `MOST` in attention_tile.glsl, `MOST` and `MOST_USED` in route.comp.
        let within = |what: &str, n: usize, most: usize| match n <= most {
            true => Ok(()),
            false => Err(Refusal::Device(op.name(), format!("{n} {what} are more than {most}"))),
        };
        match op {
            Op::Attend { kv, .. } => {
                within("elements of a head", plan.kv[usize::from(kv.0)].head_dim, 1024)?;
            }
            Op::Route { x, chosen, .. } => {
                within("experts", plan.slot_of(*x).width, 1024)?;
                within("chosen experts", plan.slot_of(*chosen).width, 64)?;
            }
            _ => {}
        }
        self.supports(op, &plan.formats_of(op))
    }

    fn free_memory(&self) -> Option<u64> {
        let inner = &self.gpu.inner;
        Some(inner.physical.budget(&inner.driver.instance).unwrap_or(inner.physical.memory_bytes()))
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: Arc<dyn WeightSource>,
        options: LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError> {
        Ok(Box::new(VulkanExecutor::load(&self.gpu, plan, weights, &options, progress)?))
    }
}
