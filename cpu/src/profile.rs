//! Timing and counting of steps, when somebody asks for it.

use std::time::Instant;

use llamay_formats::Format;
use llamay_plan::{Batch, CostModel, KvType, Op, Plan, Profiler};

use crate::kernels::Kernels;
use crate::pack::PackFormat;
use crate::slots::Slots;

/// Watches the steps of an executor.
pub(crate) struct Observer {
    pub(crate) profiler: Profiler,
    /// The experts that the last step's rows chose, each once.
    experts: Vec<usize>,
}

impl Observer {
    pub(crate) fn new(plan: &Plan) -> Observer {
        Observer { profiler: Profiler::new(plan), experts: Vec::new() }
    }

    /// Counts a step that ran over `rows` rows and has just ended.
    #[allow(clippy::too_many_arguments)] // what an executor knows of a step
    pub(crate) fn step(
        &mut self,
        plan: &Plan,
        step: usize,
        rows: usize,
        batch: &Batch<'_>,
        kernels: &Kernels,
        kv: KvType,
        slots: &Slots,
        began: Instant,
    ) {
        let ended = Instant::now();
        let op = &plan.steps[step].op;
        self.experts.clear();
        if let Op::ExpertLinear { chosen, .. } = op {
            self.experts.extend(slots.rows(*chosen, rows).iter().map(|e| *e as usize));
            self.experts.sort_unstable();
            self.experts.dedup();
        }
        let model = CostModel { kv, block_bytes: &|format| block_bytes(kernels, format) };
        let cost = model.step(plan, op, rows, batch, &self.experts);
        self.profiler.add(step, ended - began, cost);
        self.profiler.counting += ended.elapsed();
    }
}

/// Bytes of a block of weights as the kernels read it.
fn block_bytes(kernels: &Kernels, format: Format) -> usize {
    let packed = kernels.matmul(format).and_then(|_| PackFormat::of(format));
    packed.map_or(format.block_bytes(), |p| p.block_bytes())
}
