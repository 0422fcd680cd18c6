//! Runs a plan's steps, one after the other, over the tokens of a batch.

use std::sync::Arc;

use llamay_plan::{
    Batch, ExecError, Executor, KvType, LoadOptions, Op, PageId, Plan, Progress, Rope, SlotId, WeightSource,
};

use crate::attend::{Attend, AttendScratch};
use crate::kernels::Kernels;
use crate::kv::KvCache;
use crate::linear::{Linear, LinearScratch, Output};
use crate::pool::Pool;
use crate::rows::for_row_chunks;
use crate::weights::{Loader, RawMatrix};

/// A step's weights, in the form that it reads.
enum Loaded {
    Embed(RawMatrix),
    Vector(Vec<f32>),
    Linear(Linear),
    Nothing,
}

/// A plan with its weights on the CPU.
pub struct CpuExecutor {
    plan: Arc<Plan>,
    kernels: Kernels,
    steps: Vec<Loaded>,
    slots: Vec<Vec<f32>>,
    cache: KvCache,
    /// For each rotary table the batch's cosines and sines, a row of pairs a token.
    angles: Vec<(Vec<f32>, Vec<f32>)>,
    linear: LinearScratch,
    attend: AttendScratch,
    pool: Arc<Pool>,
}

/// Two different slots' buffers, the first one to be written.
fn two(slots: &mut [Vec<f32>], write: SlotId, read: SlotId) -> (&mut [f32], &[f32]) {
    match slots.get_disjoint_mut([usize::from(write.0), usize::from(read.0)]) {
        Ok([write, read]) => (write, read),
        Err(_) => unreachable!("the caller compared the slots"),
    }
}

impl CpuExecutor {
    /// Loads a plan's weights.
    pub(crate) fn load(
        plan: Arc<Plan>,
        source: &Arc<dyn WeightSource>,
        kernels: Kernels,
        pool: Arc<Pool>,
        options: LoadOptions,
        progress: Progress<'_>,
    ) -> Result<CpuExecutor, ExecError> {
        let total = plan.weight_bytes() as u64;
        let mut done = 0;
        let mut steps = Vec::with_capacity(plan.steps.len());
        let mut loader = Loader::new(&plan, source, &kernels, &pool)?;
        for step in &plan.steps {
            steps.push(match &step.op {
                Op::Embed { weight, .. } => Loaded::Embed(RawMatrix::new(&plan, *weight, source)?),
                Op::RmsNorm { weight, .. } => Loaded::Vector(loader.vector(*weight)?),
                Op::Linear { x, projections } => {
                    let width = plan.slot_of(*x).width;
                    Loaded::Linear(Linear::load(&mut loader, width, projections)?)
                }
                Op::Rope { .. }
                | Op::Attend { .. }
                | Op::Gate { .. }
                | Op::Add { .. }
                | Op::Select { .. } => Loaded::Nothing,
            });
            done += step.op.weights().iter().map(|w| plan.weight_of(*w).bytes() as u64).sum::<u64>();
            progress(done.min(total), total);
        }
        Ok(CpuExecutor {
            slots: vec![Vec::new(); plan.slots.len()],
            cache: KvCache::new(&plan, options.kv),
            angles: vec![(Vec::new(), Vec::new()); plan.ropes.len()],
            steps,
            kernels,
            plan,
            linear: LinearScratch::default(),
            attend: AttendScratch::default(),
            pool,
        })
    }

    /// Element type of the cache.
    pub fn kv_type(&self) -> KvType {
        self.cache.kind
    }

    /// Runs all steps; with `check`, looks for values that are not finite behind each.
    fn run_steps(&mut self, batch: &Batch<'_>, check: bool) -> Result<(), ExecError> {
        let plan = Arc::clone(&self.plan);
        let n_tokens = batch.tokens.len();
        for (rope, (cos, sin)) in plan.ropes.iter().zip(&mut self.angles) {
            fill_angles(&self.kernels, rope, batch, cos, sin);
        }
        let mut n = n_tokens;
        for (i, step) in plan.steps.iter().enumerate() {
            for out in step.op.outputs() {
                // Only as many rows as are used: the logits of a whole prompt would be larger than the model.
                let rows = if matches!(step.op, Op::Select { .. }) { batch.n_logits() } else { n };
                let (buffer, size) = (&mut self.slots[usize::from(out.0)], rows * plan.slot_of(out).width);
                if buffer.len() < size {
                    buffer.resize(size, 0.0);
                }
            }
            self.step(i, &step.op, batch, &mut n)?;
            if check {
                self.check(i, &step.op, n)?;
            }
            if n == 0 {
                break;
            }
        }
        Ok(())
    }

    /// An error if one of the step's outputs is not finite.
    fn check(&self, step: usize, op: &Op, n: usize) -> Result<(), ExecError> {
        for out in op.outputs() {
            let width = self.plan.slot_of(out).width;
            let rows = &self.slots[usize::from(out.0)][..n * width];
            if let Some(at) = rows.iter().position(|v| !v.is_finite()) {
                return Err(ExecError::NotFinite { step: self.plan.describe_step(step), token: at / width });
            }
        }
        Ok(())
    }

    /// Runs one step over `n` rows.
    fn step(&mut self, i: usize, op: &Op, batch: &Batch<'_>, n: &mut usize) -> Result<(), ExecError> {
        let (kernels, pool) = (&self.kernels, &*self.pool);
        let row_kernels = kernels.elementwise;
        let width = |slot: SlotId| self.plan.slot_of(slot).width;
        match op {
            Op::Embed { weight, out, scale } => {
                let Loaded::Embed(table) = &self.steps[i] else { unreachable!("loaded by kind") };
                let w = width(*out);
                let rows = &mut self.slots[usize::from(out.0)];
                for (token, row) in batch.tokens.iter().zip(rows.chunks_exact_mut(w)) {
                    table.decode_row(token.token as usize, row).map_err(|why| ExecError::Weight {
                        name: self.plan.weight_of(*weight).name.clone(),
                        why,
                    })?;
                    if *scale != 1.0 {
                        row.iter_mut().for_each(|v| *v *= scale);
                    }
                }
            }
            Op::RmsNorm { x, weight: _, eps, heads: _, out } => {
                let Loaded::Vector(weight) = &self.steps[i] else { unreachable!("loaded by kind") };
                let w = width(*x);
                if x == out {
                    let rows = &mut self.slots[usize::from(x.0)];
                    for_row_chunks(pool, *n, w, rows, &|_, rows: &mut [f32], _| {
                        let copy = rows.to_vec();
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.rms_norm)(&copy, weight, *eps, rows) };
                    });
                } else {
                    let (out, x) = two(&mut self.slots, *out, *x);
                    for_row_chunks(pool, *n, w, out, &|first, rows: &mut [f32], _| {
                        let x = &x[first * w..first * w + rows.len()];
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.rms_norm)(x, weight, *eps, rows) };
                    });
                }
            }
            Op::Linear { x, projections: _ } => {
                let Loaded::Linear(linear) = &self.steps[i] else { unreachable!("loaded by kind") };
                let x = std::mem::take(&mut self.slots[usize::from(x.0)]);
                let mut outputs = Vec::with_capacity(linear.projections().len());
                for p in linear.projections() {
                    let (ptr, stride) = (self.slots[p.out].as_mut_ptr(), self.plan.slots[p.out].width);
                    outputs.push(Output { ptr, first_row: 0, stride });
                }
                // SAFETY: the plan's validity gives every projection a slot of its own, wide enough, and the slots have
                // `n` rows.
                let result = unsafe { linear.run(pool, &x, *n, &outputs, &mut self.linear) };
                self.slots[op_input(op)] = x;
                result?;
            }
            Op::Rope { x, heads: _, head_dim, rope } => {
                let w = width(*x);
                let table = &self.plan.ropes[usize::from(rope.0)];
                let (pairs, half) = (table.pairs, table.frequencies.len());
                let (cos, sin) = &self.angles[usize::from(rope.0)];
                let rows = &mut self.slots[usize::from(x.0)];
                for_row_chunks(pool, *n, w, rows, &|first, rows: &mut [f32], _| {
                    for (i, row) in rows.chunks_exact_mut(w).enumerate() {
                        let at = (first + i) * half..(first + i + 1) * half;
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.rope)(row, *head_dim, pairs, &cos[at.clone()], &sin[at]) };
                    }
                });
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window } => {
                let layer = usize::from(kv.0);
                let (wk, wv) = (width(*k), width(*v));
                for (t, token) in batch.tokens.iter().enumerate() {
                    let (page, at) = place(batch, token.sequence, token.position);
                    let (k, v) = (&self.slots[usize::from(k.0)], &self.slots[usize::from(v.0)]);
                    self.cache.store(layer, page, at, &k[t * wk..(t + 1) * wk], &v[t * wv..(t + 1) * wv]);
                }
                let mut result = std::mem::take(&mut self.slots[usize::from(out.0)]);
                let q = &self.slots[usize::from(q.0)];
                Attend { layer, heads: *heads, scale: *scale, window: *window, q }.run(
                    kernels,
                    pool,
                    &self.cache,
                    batch,
                    &mut self.attend,
                    &mut result,
                );
                self.slots[usize::from(out.0)] = result;
            }
            Op::Gate { gate, up, out, f } => {
                let w = width(*out);
                let mut result = std::mem::take(&mut self.slots[usize::from(out.0)]);
                let slots = &self.slots;
                for_row_chunks(pool, *n, w, &mut result, &|first, rows: &mut [f32], _| {
                    let part = first * w..first * w + rows.len();
                    // The taken slot may be one of the inputs; it is then read before it is written.
                    let copy = if gate == out || up == out { rows.to_vec() } else { Vec::new() };
                    let read = |slot: &SlotId| {
                        if slot == out { copy.as_slice() } else { &slots[usize::from(slot.0)][part.clone()] }
                    };
                    // SAFETY: the table's instruction set is available.
                    unsafe { (row_kernels.gate)(read(gate), read(up), *f, rows) };
                });
                self.slots[usize::from(out.0)] = result;
            }
            Op::Add { x, y, out } => {
                let w = width(*out);
                let (acc, y) = if y == out { (y, x) } else { (x, y) };
                if acc != out {
                    let (out, x) = two(&mut self.slots, *out, *acc);
                    out[..*n * w].copy_from_slice(&x[..*n * w]);
                }
                if y == out {
                    self.slots[usize::from(out.0)].iter_mut().for_each(|v| *v += *v);
                } else {
                    let (out, y) = two(&mut self.slots, *out, *y);
                    for_row_chunks(pool, *n, w, out, &|first, rows: &mut [f32], _| {
                        let y = &y[first * w..first * w + rows.len()];
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.add)(rows, y) };
                    });
                }
            }
            Op::Select { x, out } => {
                let w = width(*x);
                let (out, x) = two(&mut self.slots, *out, *x);
                let wanted = batch.tokens.iter().enumerate().filter(|(_, t)| t.wants_logits);
                *n = 0;
                for (t, _) in wanted {
                    out[*n * w..][..w].copy_from_slice(&x[t * w..][..w]);
                    *n += 1;
                }
            }
        }
        Ok(())
    }
}

/// The slot that a linear step reads.
fn op_input(op: &Op) -> usize {
    op.inputs().first().map_or(0, |s| usize::from(s.0))
}

/// The page and the place within it of a position.
fn place(batch: &Batch<'_>, sequence: u32, position: u32) -> (PageId, usize) {
    let position = position as usize;
    (batch.tables[sequence as usize][position / llamay_plan::KV_PAGE], position % llamay_plan::KV_PAGE)
}

/// Cosines and sines of every token's angles.
fn fill_angles(kernels: &Kernels, rope: &Rope, batch: &Batch<'_>, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
    let half = rope.frequencies.len();
    cos.resize(batch.tokens.len() * half, 0.0);
    sin.resize(batch.tokens.len() * half, 0.0);
    for ((token, cos), sin) in
        batch.tokens.iter().zip(cos.chunks_exact_mut(half)).zip(sin.chunks_exact_mut(half))
    {
        let position = token.position as f32;
        // SAFETY: the table's instruction set is available.
        unsafe { (kernels.elementwise.angles)(position, &rope.frequencies, rope.magnitude, cos, sin) };
    }
}

impl Executor for CpuExecutor {
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError> {
        self.run_steps(&batch, false)?;
        let n = batch.n_logits() * self.plan.n_vocab;
        let rows = &self.slots[usize::from(self.plan.logits.0)][..n];
        // The sum of `v * 0` is 0 unless a value is not finite; then the steps run again to find the culprit.
        if rows.iter().fold(0.0f32, |sum, v| sum + v * 0.0) != 0.0 {
            self.run_steps(&batch, true)?;
        }
        logits.clear();
        logits.extend_from_slice(&self.slots[usize::from(self.plan.logits.0)][..n]);
        Ok(())
    }

    fn reserve_pages(&mut self, n: usize) -> Result<(), ExecError> {
        self.cache.reserve(n)
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.cache.copy_page(from, to);
    }
}
