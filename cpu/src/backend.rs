//! The CPU as a backend: it runs every step over every format.

use std::sync::Arc;

use llamay_formats::Format;
use llamay_plan::{
    Backend, ExecError, Executor, Gating, Index, LoadOptions, Nonlinearity, NormKind, Op, Plan, Progress,
    Refusal, Scoring, WeightSource,
};

use crate::executor::CpuExecutor;
use crate::isa::Isa;
use crate::kernels::Kernels;
use crate::kernels::self_test::choose;
use crate::pool::Pool;

/// The CPU with one instruction set and a number of threads.
pub struct CpuBackend {
    kernels: Kernels,
    faults: Vec<String>,
    pool: Arc<Pool>,
}

impl CpuBackend {
    /// The CPU with the best instruction set up to `cap` whose kernels pass their test, and `threads` threads.
    pub fn new(cap: Option<Isa>, threads: usize) -> CpuBackend {
        let (kernels, faults) = choose(Isa::up_to(cap).map(Kernels::of));
        CpuBackend { kernels, faults, pool: Arc::new(Pool::new(threads.max(1))) }
    }

    /// A sentence about each better instruction set that is not used because it computes wrongly on this machine.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.kernels.isa
    }

    /// The instruction set whose kernel multiplies weights of this format.
    pub fn isa_for(&self, format: Format) -> Isa {
        self.kernels.isa_for(format)
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn describe(&self) -> String {
        let n = self.threads();
        format!("CPU ({}, {n} thread{})", self.isa().name(), if n == 1 { "" } else { "s" })
    }

    fn supports(&self, op: &Op, _formats: &[Format]) -> Result<(), Refusal> {
        // Every format has at least a portable kernel, so only the step decides. All fields are named, so that a new one
        // does not compile until somebody has looked here.
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

    fn free_memory(&self) -> Option<u64> {
        available_memory()
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: Arc<dyn WeightSource>,
        options: LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError> {
        let pool = Arc::clone(&self.pool);
        Ok(Box::new(CpuExecutor::load(plan, &weights, self.kernels, pool, &options, progress)?))
    }
}

/// Bytes that the system can still give, as Linux estimates them.
pub(crate) fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}
