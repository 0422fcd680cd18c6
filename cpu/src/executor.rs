//! Runs a plan's steps, one after the other, over the tokens of a batch.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use llamay_plan::{
    Batch, ExecError, Executor, Index, KvType, LoadOptions, Op, PageId, Plan, Profile, Progress, Rope, Rows,
    SlotId, StepChange, WeightSource,
};

use crate::attend::{Attend, AttendScratch};
use crate::experts::{ExpertScratch, Experts};
use crate::kernels::{Kernels, Norm, Router};
use crate::kv::KvCache;
use crate::linear::{Linear, LinearScratch};
use crate::matmul::Output;
use crate::pool::Pool;
use crate::profile::Observer;
use crate::rows::for_row_chunks;
use crate::slots::Slots;
use crate::weights::{Loader, RawMatrix};

/// A step's weights, in the form that it reads.
enum Loaded {
    Embed(RawMatrix),
    /// A norm's weight and bias.
    Norm(Vec<f32>, Vec<f32>),
    /// Sinks, or the bias of a router.
    Vector(Vec<f32>),
    Linear(Linear),
    Experts(Experts),
    Nothing,
}

/// A plan with its weights on the CPU.
pub struct CpuExecutor {
    plan: Arc<Plan>,
    kernels: Kernels,
    steps: Vec<Loaded>,
    /// Steps that do not run, one flag a step.
    skipped: Vec<bool>,
    slots: Slots,
    cache: KvCache,
    /// For each rotary table the batch's cosines and sines, a row of pairs a token.
    angles: Vec<(Vec<f32>, Vec<f32>)>,
    linear: LinearScratch,
    experts: ExpertScratch,
    attend: AttendScratch,
    pool: Arc<Pool>,
    /// Times the steps, while somebody wants to know.
    observer: Option<Box<Observer>>,
    /// Whether weights stay in the file.
    streams: bool,
}

impl CpuExecutor {
    /// Loads a plan's weights.
    pub(crate) fn load(
        plan: Arc<Plan>,
        source: &Arc<dyn WeightSource>,
        kernels: Kernels,
        pool: Arc<Pool>,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<CpuExecutor, ExecError> {
        let total = plan.weight_bytes() as u64;
        let mut done = 0;
        let mut steps = Vec::with_capacity(plan.steps.len());
        let mut loader = Loader::new(&plan, source, &kernels, &pool, options.no_repack)?;
        for (i, step) in plan.steps.iter().enumerate() {
            steps.push(match &step.op {
                _ if !options.has(i) => Loaded::Nothing,
                Op::Embed { weight, .. } => {
                    let (rows, weight) =
                        (plan.weight_of(*weight).rows, Rows { weight: *weight, first_row: 0 });
                    Loaded::Embed(RawMatrix::new(&plan, weight, rows, source)?)
                }
                Op::Norm { weight, bias, .. } => {
                    Loaded::Norm(loader.optional_vector(*weight)?, loader.optional_vector(*bias)?)
                }
                Op::Attend { sinks: optional, .. } | Op::Route { bias: optional, .. } => {
                    Loaded::Vector(loader.optional_vector(*optional)?)
                }
                Op::ExpertLinear { x: _, cols, chosen, projections } => {
                    let n_used = plan.slot_of(*chosen).width;
                    Loaded::Experts(Experts::load(&mut loader, *cols, n_used, projections)?)
                }
                Op::Linear { x, projections } => {
                    let width = plan.slot_of(*x).width;
                    Loaded::Linear(Linear::load(&mut loader, width, projections)?)
                }
                Op::Rope { .. }
                | Op::Gate { .. }
                | Op::Activate { .. }
                | Op::Add { .. }
                | Op::Scale { .. }
                | Op::Softcap { .. }
                | Op::Combine { .. }
                | Op::Select { .. } => Loaded::Nothing,
            });
            done += step.op.weights().iter().map(|w| plan.weight_of(*w).bytes() as u64).sum::<u64>();
            progress(done.min(total), total);
        }
        Ok(CpuExecutor {
            slots: Slots::new(&plan),
            cache: KvCache::new(&plan, options.kv, |step| options.has(step)),
            angles: vec![(Vec::new(), Vec::new()); plan.ropes.len()],
            skipped: vec![false; steps.len()],
            steps,
            kernels,
            plan,
            linear: LinearScratch::default(),
            experts: ExpertScratch::default(),
            attend: AttendScratch::default(),
            pool,
            observer: None,
            streams: options.no_repack,
        })
    }

    /// Element type of the cache.
    pub fn kv_type(&self) -> KvType {
        self.cache.kind
    }

    /// Runs some steps; with `check`, looks for values that are not finite behind each.
    fn run_steps(&mut self, batch: &Batch<'_>, steps: Range<usize>, check: bool) -> Result<(), ExecError> {
        let plan = Arc::clone(&self.plan);
        for (rope, (cos, sin)) in plan.ropes.iter().zip(&mut self.angles) {
            fill_angles(&self.kernels, rope, batch, cos, sin);
        }
        let mut n = plan.rows_before(steps.start, batch.tokens.len(), batch.n_logits());
        for (i, step) in plan.steps.iter().enumerate().take(steps.end).skip(steps.start) {
            if n == 0 {
                break;
            }
            if self.skipped[i] {
                continue;
            }
            let (rows, began) = (n, self.observer.as_ref().map(|_| Instant::now()));
            for out in step.op.outputs() {
                // Only as many rows as are used: the logits of a whole prompt would be larger than the model.
                self.slots.reserve(out, n);
            }
            if self.streams && matches!(step.op, Op::Linear { .. }) {
                self.prefetch_after(i);
            }
            self.step(i, &step.op, batch, &mut n)?;
            if let (Some(observer), Some(began)) = (&mut self.observer, began) {
                let kv = self.cache.kind;
                observer.step(&plan, i, rows, batch, &self.kernels, kv, &self.slots, began);
            }
            if check {
                self.check(i, &step.op, n)?;
            }
        }
        Ok(())
    }

    /// Asks for the weights of the linear step after this one, or of the first one for the next token.
    fn prefetch_after(&self, step: usize) {
        let (before, after) = self.steps.split_at(step + 1);
        let next = after.iter().chain(before).find_map(|s| match s {
            Loaded::Linear(linear) => Some(linear),
            _ => None,
        });
        next.into_iter().for_each(Linear::prefetch);
    }

    /// An error if one of the step's outputs is not finite.
    fn check(&self, step: usize, op: &Op, n: usize) -> Result<(), ExecError> {
        for out in op.outputs() {
            let (rows, width) = (self.slots.rows(out, n), self.slots.width(out));
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
        let plan = &*self.plan;
        let slots = &mut self.slots;
        match op {
            Op::Embed { weight, index, out, scale } => {
                let Loaded::Embed(table) = &self.steps[i] else { unreachable!("loaded by kind") };
                let w = slots.width(*out);
                let rows = slots.rows_mut(*out, *n).chunks_exact_mut(w);
                for (token, row) in batch.tokens.iter().zip(rows) {
                    let at = match index {
                        Index::Token => token.token,
                        Index::Position => token.position,
                    };
                    table.decode_row(at as usize, row).map_err(|why| ExecError::Weight {
                        name: plan.weight_of(*weight).name.clone(),
                        why,
                    })?;
                    if *scale != 1.0 {
                        row.iter_mut().for_each(|v| *v *= scale);
                    }
                }
            }
            Op::Norm { x, kind, weight: _, bias: _, eps, heads, out } => {
                let Loaded::Norm(weight, bias) = &self.steps[i] else { unreachable!("loaded by kind") };
                let w = slots.width(*x);
                let norm = Norm { kind: *kind, len: w / heads, weight, bias, eps: *eps };
                if x == out {
                    slots.in_place(pool, *x, *x, *n, &|rows| {
                        let copy = rows.to_vec();
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.norm)(&norm, &copy, rows) };
                    });
                } else {
                    let mut result = slots.take(*out);
                    let x = slots.rows(*x, *n);
                    for_row_chunks(pool, *n, w, &mut result, &|first, rows: &mut [f32], _| {
                        let x = &x[first * w..first * w + rows.len()];
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.norm)(&norm, x, rows) };
                    });
                    slots.put(*out, result);
                }
            }
            Op::Linear { x, projections: _ } => {
                let Loaded::Linear(linear) = &self.steps[i] else { unreachable!("loaded by kind") };
                let input = slots.take(*x);
                let mut outputs = Vec::with_capacity(linear.projections().len());
                for p in linear.projections() {
                    let stride = slots.width(p.out);
                    outputs.push(Output {
                        ptr: slots.rows_mut(p.out, *n).as_mut_ptr(),
                        first_row: 0,
                        stride,
                    });
                }
                // SAFETY: the plan's validity gives every projection a slot of its own, wide enough, and the slots have
                // `n` rows.
                let result = unsafe { linear.run(pool, &input, *n, &outputs, &mut self.linear) };
                slots.put(*x, input);
                result?;
            }
            Op::Rope { x, heads: _, head_dim, rope } => {
                let w = slots.width(*x);
                let table = &plan.ropes[usize::from(rope.0)];
                let (pairs, half) = (table.pairs, table.frequencies.len());
                let (cos, sin) = &self.angles[usize::from(rope.0)];
                for_row_chunks(pool, *n, w, slots.rows_mut(*x, *n), &|first, rows: &mut [f32], _| {
                    for (i, row) in rows.chunks_exact_mut(w).enumerate() {
                        let at = (first + i) * half..(first + i + 1) * half;
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.rope)(row, *head_dim, pairs, &cos[at.clone()], &sin[at]) };
                    }
                });
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window, softcap, sinks: _ } => {
                let Loaded::Vector(sinks) = &self.steps[i] else { unreachable!("loaded by kind") };
                let layer = usize::from(kv.0);
                let (wk, wv) = (slots.width(*k), slots.width(*v));
                let (k, v) = (slots.rows(*k, *n), slots.rows(*v, *n));
                for (t, token) in batch.tokens.iter().enumerate() {
                    let (page, at) = place(batch, self.cache.group(layer), token.sequence, token.position);
                    self.cache.store(layer, page, at, &k[t * wk..(t + 1) * wk], &v[t * wv..(t + 1) * wv]);
                }
                let mut result = slots.take(*out);
                let attend = Attend {
                    layer,
                    heads: *heads,
                    scale: *scale,
                    window: *window,
                    softcap: *softcap,
                    sinks,
                    q: slots.rows(*q, *n),
                };
                attend.run(kernels, pool, &self.cache, batch, &mut self.attend, &mut result);
                slots.put(*out, result);
            }
            Op::Gate { gate, up, out, f } => {
                let w = slots.width(*out);
                let mut result = slots.take(*out);
                let slots_read = &*slots;
                for_row_chunks(pool, *n, w, &mut result, &|first, rows: &mut [f32], _| {
                    let part = first * w..first * w + rows.len();
                    // The taken slot may be one of the inputs; it is then read before it is written.
                    let copy = if gate == out || up == out { rows.to_vec() } else { Vec::new() };
                    let read = |slot: &SlotId| {
                        if slot == out { copy.as_slice() } else { &slots_read.rows(*slot, *n)[part.clone()] }
                    };
                    // SAFETY: the table's instruction set is available.
                    unsafe { (row_kernels.gate)(read(gate), read(up), *f, rows) };
                });
                slots.put(*out, result);
            }
            Op::Activate { x, f, out } => slots.in_place(pool, *x, *out, *n, &|rows| {
                // SAFETY: the table's instruction set is available.
                unsafe { (row_kernels.activate)(rows, *f) };
            }),
            Op::Scale { x, scale, out } => slots.in_place(pool, *x, *out, *n, &|rows| {
                // SAFETY: the table's instruction set is available.
                unsafe { (row_kernels.scale)(rows, *scale) };
            }),
            Op::Softcap { x, cap, out } => slots.in_place(pool, *x, *out, *n, &|rows| {
                // SAFETY: the table's instruction set is available.
                unsafe { (row_kernels.softcap)(rows, *cap) };
            }),
            Op::Add { x, y, scale, out } => {
                let (w, scale) = (slots.width(*out), *scale);
                let copy = if y == out { slots.rows(*y, *n).to_vec() } else { Vec::new() };
                slots.copy(*x, *out, *n);
                let mut result = slots.take(*out);
                let y = if y == out { copy.as_slice() } else { slots.rows(*y, *n) };
                for_row_chunks(pool, *n, w, &mut result, &|first, rows: &mut [f32], _| {
                    let y = &y[first * w..first * w + rows.len()];
                    // SAFETY: the table's instruction set is available.
                    unsafe {
                        if scale == 1.0 {
                            (row_kernels.add)(rows, y);
                        } else {
                            (row_kernels.add_scaled)(rows, y, scale);
                        }
                    }
                });
                slots.put(*out, result);
            }
            Op::Route { x, bias: _, scoring, normalize, scale, chosen, weights } => {
                let Loaded::Vector(bias) = &self.steps[i] else { unreachable!("loaded by kind") };
                let router = Router { bias, scoring: *scoring, normalize: *normalize, scale: *scale };
                let (n_expert, n_used) = (slots.width(*x), slots.width(*chosen));
                let mut scratch = vec![0.0; n_expert];
                let [mut best, mut shares] = [*chosen, *weights].map(|slot| slots.take(slot));
                let rows = slots.rows(*x, *n).chunks_exact(n_expert).zip(best.chunks_exact_mut(n_used));
                for ((scores, best), shares) in rows.zip(shares.chunks_exact_mut(n_used)) {
                    // SAFETY: the table's instruction set is available.
                    unsafe { (row_kernels.route)(&router, scores, &mut scratch, best, shares) };
                }
                slots.put(*chosen, best);
                slots.put(*weights, shares);
            }
            Op::ExpertLinear { x, cols: _, chosen, projections: _ } => {
                let Loaded::Experts(experts) = &self.steps[i] else { unreachable!("loaded by kind") };
                let mut outputs: Vec<_> = experts.outputs().map(|slot| (slot, slots.take(slot))).collect();
                let (x, chosen) = (slots.rows(*x, *n), slots.rows(*chosen, *n));
                let done = experts.run(pool, x, chosen, *n, &mut outputs, &mut self.experts);
                outputs.into_iter().for_each(|(slot, result)| slots.put(slot, result));
                done?;
            }
            Op::Combine { x, weights, out } => {
                let (w, n_parts) = (slots.width(*out), slots.width(*weights));
                let mut result = slots.take(*out);
                let (x, weights) = (slots.rows(*x, *n), slots.rows(*weights, *n));
                for_row_chunks(pool, *n, w, &mut result, &|first, rows: &mut [f32], _| {
                    for (i, row) in rows.chunks_exact_mut(w).enumerate() {
                        let x = &x[(first + i) * n_parts * w..][..n_parts * w];
                        let weights = &weights[(first + i) * n_parts..][..n_parts];
                        // SAFETY: the table's instruction set is available.
                        unsafe { (row_kernels.combine)(x, weights, row) };
                    }
                });
                slots.put(*out, result);
            }
            Op::Select { slots: selected } => {
                for slot in selected {
                    let (w, rows) = (slots.width(*slot), slots.rows_mut(*slot, *n));
                    let wanted = (0..*n).filter(|t| batch.tokens[*t].wants_logits);
                    for (to, from) in wanted.enumerate() {
                        rows.copy_within(from * w..(from + 1) * w, to * w);
                    }
                }
                *n = batch.n_logits();
            }
        }
        Ok(())
    }
}

/// The page and the place within it of a position.
fn place(batch: &Batch<'_>, group: usize, sequence: u32, position: u32) -> (PageId, usize) {
    let position = position as usize;
    let table = batch.tables[sequence as usize][group];
    (table[position / llamay_plan::KV_PAGE], position % llamay_plan::KV_PAGE)
}

/// Cosines and sines of every token's angles.
fn fill_angles(kernels: &Kernels, rope: &Rope, batch: &Batch<'_>, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
    let half = rope.frequencies.len();
    cos.resize(batch.tokens.len() * half, 0.0);
    sin.resize(batch.tokens.len() * half, 0.0);
    for ((token, cos), sin) in
        batch.tokens.iter().zip(cos.chunks_exact_mut(half)).zip(sin.chunks_exact_mut(half))
    {
        let (position, magnitude) = (token.position as f32, rope.magnitude(token.position));
        // SAFETY: the table's instruction set is available.
        unsafe { (kernels.elementwise.angles)(position, &rope.frequencies, magnitude, cos, sin) };
    }
}

impl Executor for CpuExecutor {
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError> {
        let all = 0..self.plan.steps.len();
        self.run_steps(&batch, all.clone(), false)?;
        let rows = self.slots.rows(self.plan.logits, batch.n_logits());
        // The sum of `v * 0` is 0 unless a value is not finite; then the steps run again to find the culprit.
        if rows.iter().fold(0.0f32, |sum, v| sum + v * 0.0) != 0.0 {
            self.run_steps(&batch, all, true)?;
        }
        logits.clear();
        logits.extend_from_slice(self.slots.rows(self.plan.logits, batch.n_logits()));
        Ok(())
    }

    fn run(&mut self, batch: Batch<'_>, steps: Range<usize>) -> Result<(), ExecError> {
        self.run_steps(&batch, steps, false)
    }

    fn read_slot(&mut self, slot: SlotId, rows: usize, values: &mut Vec<f32>) -> Result<(), ExecError> {
        values.clear();
        values.extend_from_slice(self.slots.rows(slot, rows));
        Ok(())
    }

    fn write_slot(&mut self, slot: SlotId, values: &[f32]) -> Result<(), ExecError> {
        let rows = values.len() / self.slots.width(slot).max(1);
        self.slots.reserve(slot, rows);
        self.slots.rows_mut(slot, rows).copy_from_slice(values);
        Ok(())
    }

    fn reserve_pages(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        self.cache.reserve(group, n)
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.cache.copy_page(group, from, to);
    }

    fn change_steps(&mut self, changes: &[(usize, StepChange)]) -> Result<(), ExecError> {
        if changes.is_empty() {
            return Ok(());
        }
        // The plan may be shared with whoever loaded it, for whom it stays as it was.
        let plan = Arc::make_mut(&mut self.plan);
        for (i, change) in changes {
            self.skipped[*i] = *change == StepChange::Skip;
            if let (StepChange::Scale(to), Op::Add { scale, .. }) = (change, &mut plan.steps[*i].op) {
                *scale = *to;
            }
        }
        Ok(())
    }

    fn profile(&mut self, on: bool) {
        self.observer = on.then(|| Box::new(Observer::new(&self.plan)));
    }

    fn take_profile(&mut self) -> Profile {
        self.observer.as_mut().map_or(Profile::default(), |o| o.profiler.take(&self.plan))
    }
}
