//! The CPU as a backend: it runs every step over every format.

use std::sync::Arc;

use llamay_formats::Format;
use llamay_plan::{
    Backend, ExecError, Executor, LoadOptions, Nonlinearity, Op, Plan, Progress, Refusal, WeightSource,
};

use crate::executor::CpuExecutor;
use crate::isa::Isa;
use crate::kernels::Kernels;
use crate::pool::Pool;

/// The CPU with one instruction set and a number of threads.
pub struct CpuBackend {
    kernels: Kernels,
    pool: Arc<Pool>,
}

impl CpuBackend {
    /// The CPU with the best instruction set up to `cap`, and `threads` threads.
    pub fn new(cap: Option<Isa>, threads: usize) -> CpuBackend {
        CpuBackend { kernels: Kernels::of(Isa::best(cap)), pool: Arc::new(Pool::new(threads.max(1))) }
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
        // Every format has at least a portable kernel, so only the step decides.
        match op {
            Op::Embed { weight: _, out: _, scale: _ }
            | Op::RmsNorm { x: _, weight: _, eps: _, heads: _, out: _ }
            | Op::Linear { x: _, projections: _ }
            | Op::Rope { x: _, heads: _, head_dim: _, rope: _ }
            | Op::Attend { q: _, k: _, v: _, out: _, kv: _, heads: _, scale: _, window: _ }
            | Op::Gate { gate: _, up: _, out: _, f: Nonlinearity::Silu | Nonlinearity::GeluTanh }
            | Op::Add { x: _, y: _, out: _ }
            | Op::Select { x: _, out: _ } => Ok(()),
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
        Ok(Box::new(CpuExecutor::load(plan, &weights, self.kernels, pool, options, progress)?))
    }
}

/// Bytes that the system can still give, as Linux estimates them.
fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}
