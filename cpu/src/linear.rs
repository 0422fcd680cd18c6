//! The linear step: inputs become records once, then all projections' rows are shared out among the threads.

use std::ops::Range;

use llamay_formats::{Activation, Format, QuantizedRow};
use llamay_plan::{ExecError, Plan, Projection, WeightSource};

use crate::acts::ActLayout;
use crate::kernels::{FloatArgs, Kernels, MatArgs};
use crate::pool::Pool;
use crate::rows::for_row_chunks;
use crate::weights::{Matrix, RawMatrix, load_vector};

/// One projection of the step.
pub(crate) struct LoadedProjection {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
    /// Index of the output slot.
    pub(crate) out: usize,
}

/// A linear step with its weights.
pub(crate) struct Linear {
    pub(crate) projections: Vec<LoadedProjection>,
    /// The forms of input that the projections need, each once.
    layouts: Vec<ActLayout>,
    /// Whether a projection reads its input as [`QuantizedRow`]s.
    portable: Vec<Activation>,
    k: usize,
}

/// Buffers that linear steps share.
#[derive(Default)]
pub(crate) struct LinearScratch {
    /// Records of each kind.
    records: [Vec<u32>; 3],
    /// Reference rows of each kind.
    rows: [Vec<QuantizedRow>; 3],
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
    /// In units of [`Matrix::unit_rows`].
    units: Range<usize>,
}

/// Where a projection's outputs go.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// Row 0 of the first column.
    pub(crate) ptr: *mut f32,
    /// Floats from one column to the next.
    pub(crate) stride: usize,
}

// SAFETY: tasks write disjoint rows through it.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

impl Linear {
    pub(crate) fn load(
        plan: &Plan,
        x_width: usize,
        projections: &[Projection],
        source: &std::sync::Arc<dyn WeightSource>,
        kernels: &Kernels,
        pool: &Pool,
    ) -> Result<Linear, ExecError> {
        let mut loaded = Vec::with_capacity(projections.len());
        for p in projections {
            loaded.push(LoadedProjection {
                matrix: Matrix::load(plan, p.weight, source, kernels, pool)?,
                bias: p.bias.map(|b| load_vector(plan, b, source.as_ref())).transpose()?,
                out: usize::from(p.out.0),
            });
        }
        let (mut layouts, mut portable) = (Vec::new(), Vec::new());
        for p in &loaded {
            let kind = p.matrix.format().activation();
            match needs(&p.matrix, kernels) {
                Input::Record => {
                    let layout = ActLayout::new(kind, x_width);
                    if !layouts.contains(&layout) {
                        layouts.push(layout);
                    }
                }
                Input::Reference if !portable.contains(&kind) => portable.push(kind),
                Input::Reference => {}
            }
        }
        Ok(Linear { projections: loaded, layouts, portable, k: x_width })
    }

    /// Multiplies `n` rows of `x` with every projection.
    pub(crate) fn run(
        &self,
        kernels: &Kernels,
        pool: &Pool,
        x: &[f32],
        n: usize,
        outputs: &[Output],
        scratch: &mut LinearScratch,
    ) -> Result<(), ExecError> {
        for layout in &self.layouts {
            let records = &mut scratch.records[index(layout.kind)];
            records.resize(n * layout.words, 0);
            for_row_chunks(pool, n, layout.words, records, &|first, records: &mut [u32], _| {
                for (i, record) in records.chunks_exact_mut(layout.words).enumerate() {
                    let row = &x[(first + i) * self.k..][..self.k];
                    // SAFETY: the table's instruction set is available.
                    unsafe { (kernels.elementwise.record)(row, layout, record) };
                }
            });
        }
        for kind in &self.portable {
            let rows = &mut scratch.rows[index(*kind)];
            rows.clear();
            if *kind != Activation::F32 {
                rows.extend(x.chunks_exact(self.k).take(n).map(|row| QuantizedRow::new(*kind, row)));
            }
        }
        let tasks = self.tasks(pool.threads());
        let scratch = &*scratch;
        let failed = std::sync::Mutex::new(None);
        pool.run(tasks.len(), &|task, _| {
            let Task { projection, units } = &tasks[task];
            let p = &self.projections[*projection];
            let result = project(
                &p.matrix,
                units.clone(),
                kernels,
                &self.layouts,
                scratch,
                x,
                self.k,
                n,
                outputs[*projection],
            );
            if let Err(why) = result {
                *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(why);
            }
        });
        if let Some(why) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Err(ExecError::Weight { name: "a mapped weight".to_owned(), why });
        }
        for (p, out) in self.projections.iter().zip(outputs) {
            if let Some(bias) = &p.bias {
                for col in 0..n {
                    // SAFETY: the tasks are done, so the output's columns are this thread's alone again.
                    let y =
                        unsafe { std::slice::from_raw_parts_mut(out.ptr.add(col * out.stride), bias.len()) };
                    // SAFETY: the table's instruction set is available.
                    unsafe { (kernels.elementwise.add)(y, bias) };
                }
            }
        }
        Ok(())
    }

    /// Shares the rows of all projections out in about `8 * threads` tasks.
    fn tasks(&self, threads: usize) -> Vec<Task> {
        let units = |p: &LoadedProjection| p.matrix.rows().div_ceil(p.matrix.unit_rows());
        let total: usize = self.projections.iter().map(units).sum();
        let per_task = if threads == 1 { total } else { total.div_ceil(threads * 8) }.max(1);
        let mut tasks = Vec::new();
        for (projection, p) in self.projections.iter().enumerate() {
            let n = units(p);
            for from in (0..n).step_by(per_task) {
                tasks.push(Task { projection, units: from..(from + per_task).min(n) });
            }
        }
        tasks
    }
}

/// The form of input that a matrix's kernel reads.
enum Input {
    Record,
    Reference,
}

fn needs(matrix: &Matrix, kernels: &Kernels) -> Input {
    match matrix {
        Matrix::Packed(_) => Input::Record,
        Matrix::Raw(m) if has_float_kernel(m, kernels) => Input::Record,
        Matrix::Raw(_) => Input::Reference,
    }
}

fn has_float_kernel(m: &RawMatrix, kernels: &Kernels) -> bool {
    kernels.float.is_some() && matches!(m.format, Format::F32 | Format::F16 | Format::BF16)
}

/// One task: some rows of one projection, all columns.
#[allow(clippy::too_many_arguments)]
fn project(
    matrix: &Matrix,
    units: Range<usize>,
    kernels: &Kernels,
    layouts: &[ActLayout],
    scratch: &LinearScratch,
    x: &[f32],
    k: usize,
    n: usize,
    out: Output,
) -> Result<(), String> {
    let kind = matrix.format().activation();
    match matrix {
        Matrix::Packed(weights) => {
            let layout = layouts.iter().find(|l| l.kind == kind).ok_or("no records of this kind")?;
            let kernel = kernels.matmul(weights.format).ok_or("no kernel for a packed format")?;
            let args = MatArgs {
                weights,
                groups: units,
                layout,
                x: &scratch.records[index(kind)],
                n_cols: n,
                out: out.ptr,
                first_row: 0,
                out_stride: out.stride,
            };
            // SAFETY: the weights were packed for this table, the records made for `n` columns, and the task alone has
            // these rows of the output.
            unsafe { kernel(&args) };
        }
        Matrix::Raw(raw) => {
            let rows = units.start * matrix.unit_rows()..(units.end * matrix.unit_rows()).min(raw.rows);
            let bytes = raw.bytes()?;
            match kernels.float.filter(|_| has_float_kernel(raw, kernels)) {
                Some(kernel) => {
                    let args = FloatArgs {
                        format: raw.format,
                        weights: &bytes,
                        k,
                        rows,
                        x: &scratch.records[index(Activation::F32)],
                        n_cols: n,
                        out: out.ptr,
                        first_row: 0,
                        out_stride: out.stride,
                    };
                    // SAFETY: `bytes` holds all rows, and the task alone has these rows of the output.
                    unsafe { kernel(&args) };
                }
                None => {
                    let size = raw.format.row_bytes(k).ok_or("a row is no whole number of blocks")?;
                    for row in rows {
                        let w = &bytes[row * size..(row + 1) * size];
                        for col in 0..n {
                            let y = if kind == Activation::F32 {
                                raw.format.dot_f32(w, &x[col * k..][..k])
                            } else {
                                raw.format.dot(w, &scratch.rows[index(kind)][col])
                            };
                            // SAFETY: the task alone has this row of the output.
                            unsafe { *out.ptr.add(col * out.stride + row) = y };
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
