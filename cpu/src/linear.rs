//! The linear step: inputs become records once, then all projections' rows are shared out among the threads.
//!
//! With one token (decode) the step is a pool [`Job`], whose chunks may be redone when a worker is held up by another
//! process; with more tokens it is a plain shared loop over rows, each task over all tokens.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_plan::{ExecError, Projection};

use crate::acts::ActLayout;
use crate::kernels::{FloatArgs, Kernels, MatArgs};
use crate::pool::{Job, Pool};
use crate::rows::for_row_chunks;
use crate::weights::{Loader, Matrix, RawMatrix};

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
    /// Index of the output slot.
    pub(crate) out: usize,
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
    /// The records that the projections need, each once, and where each begins in a job's input.
    layouts: Vec<(ActLayout, usize)>,
    /// The kinds that a projection reads as [`QuantizedRow`]s (or, for `F32`, as plain rows).
    references: Vec<Activation>,
    k: usize,
}

/// Buffers that linear steps share.
#[derive(Default)]
pub(crate) struct LinearScratch {
    /// Records of each kind.
    records: [Vec<u32>; 3],
    /// Reference rows of each kind.
    rows: [Vec<QuantizedRow>; 3],
    job_input: Vec<u32>,
    job_output: Vec<f32>,
}

const fn index(kind: Activation) -> usize {
    match kind {
        Activation::F32 => 0,
        Activation::I8x32 => 1,
        Activation::I8x256 => 2,
    }
}

/// Rows of one projection's output, for one task.
#[derive(Clone, Debug)]
struct Task {
    projection: usize,
    rows: Range<usize>,
}

/// Where a projection's outputs go.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Row `first_row` of the first column.
    pub(crate) ptr: *mut f32,
    pub(crate) first_row: usize,
    /// Floats from one column to the next.
    pub(crate) stride: usize,
}

// SAFETY: tasks write disjoint rows through it.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// The input columns in the form that one matrix reads.
enum Columns<'a> {
    Records(&'a ActLayout, &'a [u32]),
    Quantized(&'a [QuantizedRow]),
    Floats(&'a [f32]),
}

/// Whether a matrix's kernel reads records, or the reference its rows.
fn reads_records(matrix: &Matrix, kernels: &Kernels) -> bool {
    match matrix {
        Matrix::Packed(_) => true,
        Matrix::Raw(m) => has_float_kernel(m, kernels),
    }
}

fn has_float_kernel(m: &RawMatrix, kernels: &Kernels) -> bool {
    kernels.float.is_some() && matches!(m.format, Format::F32 | Format::F16 | Format::BF16)
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
            let matrix = loader.matrix(p.weight)?;
            let bias = p.bias.map(|b| loader.vector(b)).transpose()?;
            let rows = matrix.rows();
            loaded.push(LoadedProjection { matrix, bias, out: usize::from(p.out.0), first_row: job_rows });
            job_rows += rows.next_multiple_of(CHUNK_ROWS);
        }
        let (mut layouts, mut references): (Vec<(ActLayout, usize)>, _) = (Vec::new(), Vec::new());
        let mut words = 0;
        for p in &loaded {
            let kind = p.matrix.format().activation();
            if !reads_records(&p.matrix, &kernels) {
                if !references.contains(&kind) {
                    references.push(kind);
                }
            } else if layouts.iter().all(|(l, _)| l.kind != kind) {
                let layout = ActLayout::new(kind, x_width);
                layouts.push((layout, words));
                words += layout.words;
            }
        }
        let tasks = tasks(&loaded, threads);
        let bytes: usize = projections.iter().map(|p| loader.plan.weight_of(p.weight).bytes()).sum();
        let core = Arc::new(Core { projections: loaded, kernels, layouts, references, k: x_width });
        let job = Arc::clone(&core);
        let chunk_rows = chunk_rows(job_rows, bytes, threads);
        Ok(Linear { core, job, tasks, chunk_rows, job_rows })
    }

    /// The projections, whose outputs [`Linear::run`] wants in this order.
    pub(crate) fn projections(&self) -> &[LoadedProjection] {
        &self.core.projections
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
        if n == 1 && core.references.is_empty() {
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
        let words = core.layouts.iter().map(|(l, _)| l.words).sum();
        scratch.job_input.resize(words, 0);
        for (layout, at) in &core.layouts {
            let record = &mut scratch.job_input[*at..at + layout.words];
            // SAFETY: the table's instruction set is available.
            unsafe { (core.kernels.elementwise.record)(&x[..core.k], layout, record) };
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
        for (layout, _) in &core.layouts {
            let records = &mut scratch.records[index(layout.kind)];
            records.resize(n * layout.words, 0);
            for_row_chunks(pool, n, layout.words, records, &|first, records: &mut [u32], _| {
                for (i, record) in records.chunks_exact_mut(layout.words).enumerate() {
                    let row = &x[(first + i) * core.k..][..core.k];
                    // SAFETY: the table's instruction set is available.
                    unsafe { (core.kernels.elementwise.record)(row, layout, record) };
                }
            });
        }
        for kind in &core.references {
            let rows = &mut scratch.rows[index(*kind)];
            rows.clear();
            if *kind != Activation::F32 {
                rows.extend(x.chunks_exact(core.k).take(n).map(|row| QuantizedRow::new(*kind, row)));
            }
        }
        let scratch = &*scratch;
        let failed = Mutex::new(None);
        pool.run(self.tasks.len(), &|task, _| {
            let Task { projection, rows } = &self.tasks[task];
            let p = &core.projections[*projection];
            let kind = p.matrix.format().activation();
            let layout = core.layouts.iter().find(|(l, _)| l.kind == kind);
            let columns = match layout {
                Some((layout, _)) if reads_records(&p.matrix, &core.kernels) => {
                    Columns::Records(layout, &scratch.records[index(kind)])
                }
                _ if kind == Activation::F32 => Columns::Floats(x),
                _ => Columns::Quantized(&scratch.rows[index(kind)]),
            };
            // SAFETY: the records are those of `n` columns, and the task alone has these rows of the output.
            if let Err(why) = unsafe { core.rows(p, rows.clone(), &columns, n, outputs[*projection]) } {
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
            let Some((layout, at)) = self.layouts.iter().find(|(l, _)| l.kind == kind) else {
                unreachable!("a job has records for every projection")
            };
            let rows = from - p.first_row..to - p.first_row;
            let output =
                Output { ptr: out[from - first..to - first].as_mut_ptr(), first_row: rows.start, stride: 0 };
            let columns = Columns::Records(layout, &input[*at..at + layout.words]);
            // SAFETY: the input holds one column's records, and `out` is this call's own.
            let result = unsafe { self.rows(p, rows, &columns, 1, output) };
            debug_assert!(result.is_ok(), "a matrix that reads records is in memory");
        }
    }
}

impl Core {
    /// Some rows of one projection, all columns. `rows` begins at a multiple of the matrix's unit.
    ///
    /// # Safety
    /// `columns` holds `n` columns, and nobody else has these rows of the output.
    unsafe fn rows(
        &self,
        p: &LoadedProjection,
        rows: Range<usize>,
        columns: &Columns<'_>,
        n: usize,
        out: Output,
    ) -> Result<(), String> {
        match (&p.matrix, columns) {
            (Matrix::Packed(weights), Columns::Records(layout, x)) => {
                let kernel = self.kernels.matmul(weights.format).ok_or("no kernel for a packed format")?;
                let args = MatArgs {
                    weights,
                    groups: rows.start / weights.lanes..rows.end.div_ceil(weights.lanes),
                    layout,
                    x,
                    n_cols: n,
                    out: out.ptr,
                    first_row: out.first_row,
                    out_stride: out.stride,
                };
                // SAFETY: the weights were packed for this table; the rest is the caller's word.
                unsafe { kernel(&args) };
            }
            (Matrix::Raw(raw), Columns::Records(_, x)) => {
                let kernel = self.kernels.float.ok_or("no kernel for float rows")?;
                let args = FloatArgs {
                    format: raw.format,
                    weights: &raw.bytes()?,
                    k: self.k,
                    rows,
                    x,
                    n_cols: n,
                    out: out.ptr,
                    first_row: out.first_row,
                    out_stride: out.stride,
                };
                // SAFETY: the weights are whole rows of the file; the rest is the caller's word.
                unsafe { kernel(&args) };
            }
            (Matrix::Raw(raw), columns) => {
                let size = raw.format.row_bytes(self.k).ok_or("a row is no whole number of blocks")?;
                let bytes = raw.bytes()?;
                for row in rows {
                    let w = &bytes[row * size..(row + 1) * size];
                    for col in 0..n {
                        let y = match columns {
                            Columns::Quantized(x) => raw.format.dot(w, &x[col]),
                            Columns::Floats(x) => raw.format.dot_f32(w, &x[col * self.k..][..self.k]),
                            Columns::Records(..) => unreachable!("matched above"),
                        };
                        // SAFETY: the caller vouches for this row of the output.
                        unsafe { *out.ptr.add(col * out.stride + row - out.first_row) = y };
                    }
                }
            }
            (Matrix::Packed(_), Columns::Quantized(_) | Columns::Floats(_)) => {
                unreachable!("packed rows are multiplied with records")
            }
        }
        Ok(())
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
