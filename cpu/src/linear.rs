//! The linear step: inputs become records once, then all projections' rows are shared out among the threads.
//!
//! With one token (decode) the step is a pool [`Job`], whose chunks may be redone when a worker is held up by another
//! process; with more tokens it is a plain shared loop over rows, each task over all tokens.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use llamay_plan::{ExecError, Plan, Projection, SlotId};

use crate::kernels::Kernels;
use crate::matmul::{Columns, InputScratch, Inputs, Output, multiply};
use crate::pool::{Job, Pool};
use crate::weights::{Loader, Matrix};

/// Bytes of weights in one chunk of a decode step: some microseconds' worth of reading.
const CHUNK_BYTES: usize = 1 << 15;
/// Rows that a chunk of a decode step is a multiple of: every kernel's group of rows divides it.
const CHUNK_ROWS: usize = 64;
/// Tasks that each thread gets of a step over many tokens, so that a slow thread leaves its share to others.
const TASKS_PER_THREAD: usize = 8;

/// One projection of the step.
pub(crate) struct LoadedProjection {
    matrix: Matrix,
    bias: Option<Vec<f32>>,
    /// The output slot.
    pub(crate) out: SlotId,
    /// Its first row in the job's output.
    first_row: usize,
}

/// A linear step with its weights.
pub(crate) struct Linear {
    core: Arc<Core>,
    job: Arc<dyn Job>,
    tasks: Vec<Task>,
    /// Rows of a job's chunk.
    chunk_rows: usize,
    /// Rows of all projections in the job's output.
    job_rows: usize,
}

/// What the threads share.
struct Core {
    projections: Vec<LoadedProjection>,
    kernels: Kernels,
    inputs: Inputs,
}

/// Buffers that linear steps share.
#[derive(Default)]
pub(crate) struct LinearScratch {
    inputs: InputScratch,
    job_input: Vec<u32>,
    job_output: Vec<f32>,
}

/// Rows of one projection's output, for one task.
#[derive(Clone, Debug)]
struct Task {
    projection: usize,
    rows: Range<usize>,
}

impl Linear {
    /// Loads a step's matrices.
    pub(crate) fn load(
        loader: &mut Loader<'_>,
        x_width: usize,
        projections: &[Projection],
    ) -> Result<Linear, ExecError> {
        let kernels = *loader.kernels;
        let threads = loader.pool.threads();
        let (mut loaded, mut job_rows) = (Vec::with_capacity(projections.len()), 0);
        for p in projections {
            let rows = loader.plan.slot_of(p.out).width;
            let matrix = loader.matrix(p.weight, rows)?;
            let bias = p.bias.map(|b| loader.elements(b, rows)).transpose()?;
            loaded.push(LoadedProjection { matrix, bias, out: p.out, first_row: job_rows });
            job_rows += rows.next_multiple_of(CHUNK_ROWS);
        }
        let tasks = tasks(&loaded, threads);
        let bytes = projections.iter().map(|p| part_bytes(loader.plan, p)).sum();
        let inputs = Inputs::of(loaded.iter().map(|p| &p.matrix), &kernels, x_width);
        let core = Arc::new(Core { projections: loaded, kernels, inputs });
        let job = Arc::clone(&core);
        let chunk_rows = chunk_rows(job_rows, bytes, threads);
        Ok(Linear { core, job, tasks, chunk_rows, job_rows })
    }

    /// The projections, whose outputs [`Linear::run`] wants in this order.
    pub(crate) fn projections(&self) -> &[LoadedProjection] {
        &self.core.projections
    }

    /// Says that the step comes soon, so that rows that stay in the file are on their way.
    pub(crate) fn prefetch(&self) {
        self.core.projections.iter().for_each(|p| p.matrix.prefetch());
    }

    /// Multiplies `n` rows of `x` with every projection.
    ///
    /// # Safety
    /// Each output has `n` columns of its projection's rows, writable and not touched by anyone else, and begins with
    /// row 0.
    pub(crate) unsafe fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        n: usize,
        outputs: &[Output],
        scratch: &mut LinearScratch,
    ) -> Result<(), ExecError> {
        let core = &*self.core;
        if n == 1 && core.inputs.references.is_empty() {
            self.run_job(pool, x, outputs, scratch);
        } else {
            self.run_tasks(pool, x, n, outputs, scratch)?;
        }
        for (p, out) in core.projections.iter().zip(outputs) {
            let Some(bias) = &p.bias else { continue };
            for col in 0..n {
                // SAFETY: the tasks are done, so the output's columns are this thread's alone again.
                let y = unsafe { std::slice::from_raw_parts_mut(out.ptr.add(col * out.stride), bias.len()) };
                // SAFETY: the table's instruction set is available.
                unsafe { (core.kernels.elementwise.add)(y, bias) };
            }
        }
        Ok(())
    }

    /// One token, in chunks that may be redone.
    fn run_job(&self, pool: &Pool, x: &[f32], outputs: &[Output], scratch: &mut LinearScratch) {
        let core = &*self.core;
        scratch.job_input.resize(core.inputs.words(), 0);
        for (layout, at) in &core.inputs.layouts {
            let record = &mut scratch.job_input[*at..at + layout.words];
            // SAFETY: the table's instruction set is available.
            unsafe { (core.kernels.elementwise.record)(&x[..core.inputs.k], layout, record) };
        }
        scratch.job_output.resize(self.job_rows, 0.0);
        pool.run_job(&self.job, &scratch.job_input, self.chunk_rows, &mut scratch.job_output);
        for (p, out) in core.projections.iter().zip(outputs) {
            let rows = &scratch.job_output[p.first_row..p.first_row + p.matrix.rows()];
            // SAFETY: the caller vouches for the output's first column.
            unsafe { out.ptr.copy_from_nonoverlapping(rows.as_ptr(), rows.len()) };
        }
    }

    /// Any number of tokens, in tasks of some rows and all tokens.
    fn run_tasks(
        &self,
        pool: &Pool,
        x: &[f32],
        n: usize,
        outputs: &[Output],
        scratch: &mut LinearScratch,
    ) -> Result<(), ExecError> {
        let core = &*self.core;
        core.inputs.fill(&core.kernels, pool, x, n, &mut scratch.inputs);
        let filled = &scratch.inputs;
        let failed = Mutex::new(None);
        pool.run(self.tasks.len(), &|task, _| {
            let Task { projection, rows } = &self.tasks[task];
            let p = &core.projections[*projection];
            let columns = core.inputs.columns(&p.matrix, &core.kernels, x, filled, 0..n);
            // SAFETY: the columns are `n`, and the task alone has these rows of the output.
            let result = unsafe { core.multiply(p, rows.clone(), &columns, n, outputs[*projection]) };
            if let Err(why) = result {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => Err(ExecError::Weight { name: "of a linear step".to_owned(), why }),
            None => Ok(()),
        }
    }
}

/// Shares the rows of all projections out.
fn tasks(projections: &[LoadedProjection], threads: usize) -> Vec<Task> {
    let total: usize = projections.iter().map(|p| p.matrix.rows()).sum();
    let wanted = if threads == 1 { total } else { total.div_ceil(threads * TASKS_PER_THREAD) };
    let mut tasks = Vec::new();
    for (projection, p) in projections.iter().enumerate() {
        let per_task = wanted.next_multiple_of(p.matrix.unit_rows()).max(p.matrix.unit_rows());
        for from in (0..p.matrix.rows()).step_by(per_task) {
            tasks.push(Task { projection, rows: from..(from + per_task).min(p.matrix.rows()) });
        }
    }
    tasks
}

/// Bytes in the file of a projection's rows.
fn part_bytes(plan: &Plan, p: &Projection) -> usize {
    let weight = plan.weight_of(p.weight.weight);
    plan.slot_of(p.out).width * weight.format.row_bytes(weight.cols).unwrap_or(0)
}

/// Rows of a chunk: at least [`CHUNK_BYTES`] of weights, and where that allows it four chunks a thread.
fn chunk_rows(rows: usize, bytes: usize, threads: usize) -> usize {
    let least = (CHUNK_BYTES * rows).div_ceil(bytes.max(1));
    let most = rows.div_ceil(threads * 4);
    least.max(most.min(least * 8)).next_multiple_of(CHUNK_ROWS)
}

impl Job for Core {
    fn compute(&self, first: usize, input: &[u32], out: &mut [f32]) {
        for p in &self.projections {
            let from = first.max(p.first_row);
            let to = (first + out.len()).min(p.first_row + p.matrix.rows());
            if from >= to {
                continue;
            }
            let kind = p.matrix.format().activation();
            let Some((layout, at)) = self.inputs.layouts.iter().find(|(l, _)| l.kind == kind) else {
                unreachable!("a job has records for every projection")
            };
            let rows = from - p.first_row..to - p.first_row;
            let output =
                Output { ptr: out[from - first..to - first].as_mut_ptr(), first_row: rows.start, stride: 0 };
            let columns = Columns::Records(layout, &input[*at..at + layout.words]);
            // SAFETY: the input holds one column's records, and `out` is this call's own.
            let result = unsafe { self.multiply(p, rows, &columns, 1, output) };
            debug_assert!(result.is_ok(), "the rows were read when the matrix was loaded");
        }
    }
}

impl Core {
    /// Some rows of one projection, all columns.
    ///
    /// # Safety
    /// As for [`multiply`].
    unsafe fn multiply(
        &self,
        p: &LoadedProjection,
        rows: Range<usize>,
        columns: &Columns<'_>,
        n: usize,
        out: Output,
    ) -> Result<(), String> {
        // SAFETY: passed on to the caller.
        unsafe { multiply(&self.kernels, &p.matrix, self.inputs.k, rows, columns, n, out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_whole_groups_and_neither_tiny_nor_few() {
        // 960 rows of 360 bytes: 32 KiB are 91 rows, so 128 a chunk; two threads then have four each.
        assert_eq!(chunk_rows(960, 960 * 360, 2), 128);
        // A vocabulary: bounded by eight times the least chunk, not by a share of the whole.
        assert_eq!(chunk_rows(49152, 49152 * 612, 2), 448);
        assert_eq!(chunk_rows(64, 64, 1) % CHUNK_ROWS, 0);
    }
}
