//! Matrix products of any matrix with input rows: the rows are brought into the form that each matrix's kernel reads, once
//! for all matrices that share them.

use std::ops::Range;

use llamay_formats::{Activation, Format, QuantizedRow};

use crate::acts::ActLayout;
use crate::kernels::{FloatArgs, Kernels, MatArgs};
use crate::pool::Pool;
use crate::rows::for_row_chunks;
use crate::stream;
use crate::weights::{Matrix, RawMatrix};

/// Where a product goes.
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
pub(crate) enum Columns<'a> {
    Records(&'a ActLayout, &'a [u32]),
    Quantized(&'a [QuantizedRow]),
    Floats(&'a [f32]),
}

/// The forms that some matrices read their shared input in.
pub(crate) struct Inputs {
    /// The records, each kind once, and where each begins in a job's input.
    pub(crate) layouts: Vec<(ActLayout, usize)>,
    /// The kinds that a matrix reads as [`QuantizedRow`]s (or, for `F32`, as plain rows): those without a kernel.
    pub(crate) references: Vec<Activation>,
    pub(crate) k: usize,
}

/// Input rows in every form that somebody reads.
#[derive(Default)]
pub(crate) struct InputScratch {
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

/// Whether a matrix's kernel reads records, or the reference its rows.
fn reads_records(matrix: &Matrix, kernels: &Kernels) -> bool {
    match matrix {
        Matrix::Packed(_) | Matrix::Streamed(_) => true,
        Matrix::Raw(m) => has_float_kernel(m, kernels),
    }
}

fn has_float_kernel(m: &RawMatrix, kernels: &Kernels) -> bool {
    kernels.float.is_some() && matches!(m.format, Format::F32 | Format::F16 | Format::BF16)
}

impl Inputs {
    /// What these matrices read of rows of `k` elements.
    pub(crate) fn of<'a>(
        matrices: impl IntoIterator<Item = &'a Matrix>,
        kernels: &Kernels,
        k: usize,
    ) -> Inputs {
        let mut inputs = Inputs { layouts: Vec::new(), references: Vec::new(), k };
        for matrix in matrices {
            let kind = matrix.format().activation();
            if !reads_records(matrix, kernels) {
                if !inputs.references.contains(&kind) {
                    inputs.references.push(kind);
                }
            } else if inputs.layouts.iter().all(|(l, _)| l.kind != kind) {
                let words = inputs.words();
                inputs.layouts.push((ActLayout::new(kind, k), words));
            }
        }
        inputs
    }

    /// Words of one row's records of all kinds.
    pub(crate) fn words(&self) -> usize {
        self.layouts.iter().map(|(l, _)| l.words).sum()
    }

    /// Brings `n` rows of `x` into all forms.
    pub(crate) fn fill(&self, kernels: &Kernels, pool: &Pool, x: &[f32], n: usize, to: &mut InputScratch) {
        for (layout, _) in &self.layouts {
            let records = &mut to.records[index(layout.kind)];
            records.resize(n * layout.words, 0);
            for_row_chunks(pool, n, layout.words, records, &|first, records: &mut [u32], _| {
                for (i, record) in records.chunks_exact_mut(layout.words).enumerate() {
                    let row = &x[(first + i) * self.k..][..self.k];
                    // SAFETY: the table's instruction set is available.
                    unsafe { (kernels.elementwise.record)(row, layout, record) };
                }
            });
        }
        for kind in &self.references {
            let rows = &mut to.rows[index(*kind)];
            rows.clear();
            if *kind != Activation::F32 {
                rows.extend(x.chunks_exact(self.k).take(n).map(|row| QuantizedRow::new(*kind, row)));
            }
        }
    }

    /// The columns `range` of the rows that [`Inputs::fill`] was given, as `matrix` reads them.
    pub(crate) fn columns<'a>(
        &'a self,
        matrix: &Matrix,
        kernels: &Kernels,
        x: &'a [f32],
        filled: &'a InputScratch,
        range: Range<usize>,
    ) -> Columns<'a> {
        let kind = matrix.format().activation();
        match self.layouts.iter().find(|(l, _)| l.kind == kind) {
            Some((layout, _)) if reads_records(matrix, kernels) => {
                let words = range.start * layout.words..range.end * layout.words;
                Columns::Records(layout, &filled.records[index(kind)][words])
            }
            _ if kind == Activation::F32 => Columns::Floats(&x[range.start * self.k..range.end * self.k]),
            _ => Columns::Quantized(&filled.rows[index(kind)][range]),
        }
    }
}

/// Some rows of a matrix, rows of `k` elements, times `n` columns. `rows` begins at a multiple of the matrix's unit.
///
/// # Errors
/// If the weights cannot be read.
///
/// # Safety
/// `columns` holds `n` columns, and nobody else has these rows of the output.
pub(crate) unsafe fn multiply(
    kernels: &Kernels,
    matrix: &Matrix,
    k: usize,
    rows: Range<usize>,
    columns: &Columns<'_>,
    n: usize,
    out: Output,
) -> Result<(), String> {
    match (matrix, columns) {
        (Matrix::Packed(weights), Columns::Records(layout, x)) => {
            let kernel = kernels.matmul(weights.format).ok_or("no kernel for a packed format")?;
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
        (Matrix::Streamed(streamed), Columns::Records(layout, x)) => {
            let kernel = kernels.matmul(streamed.raw.format).ok_or("no kernel for a packed format")?;
            // SAFETY: the rows are packed for this table; the rest is the caller's word.
            unsafe { stream::multiply(kernel, streamed, rows, layout, x, n, out)? };
        }
        (Matrix::Raw(raw), Columns::Records(_, x)) => {
            let kernel = kernels.float.ok_or("no kernel for float rows")?;
            let args = FloatArgs {
                format: raw.format,
                weights: &raw.bytes()?,
                k,
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
            let size = raw.format.row_bytes(k).ok_or("a row is no whole number of blocks")?;
            let bytes = raw.bytes()?;
            for row in rows {
                let w = &bytes[row * size..(row + 1) * size];
                for col in 0..n {
                    let y = match columns {
                        Columns::Quantized(x) => raw.format.dot(w, &x[col]),
                        Columns::Floats(x) => raw.format.dot_f32(w, &x[col * k..][..k]),
                        Columns::Records(..) => unreachable!("matched above"),
                    };
                    // SAFETY: the caller vouches for this row of the output.
                    unsafe { *out.ptr.add(col * out.stride + row - out.first_row) = y };
                }
            }
        }
        (Matrix::Packed(_) | Matrix::Streamed(_), Columns::Quantized(_) | Columns::Floats(_)) => {
            unreachable!("packed rows are multiplied with records")
        }
    }
    Ok(())
}
