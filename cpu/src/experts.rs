//! The expert step: tokens are grouped by the experts that they chose, so that an expert's weights are read once for all of
//! its tokens, and an expert that nobody chose is not read at all.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use llamay_plan::{ExecError, ExpertProjection, SlotId};

use crate::kernels::Kernels;
use crate::matmul::{InputScratch, Inputs, Output, multiply};
use crate::pool::Pool;
use crate::rows::for_row_chunks;
use crate::weights::{Loader, Matrix};

/// Tasks that each thread gets, so that a slow thread leaves its share to others.
const TASKS_PER_THREAD: usize = 8;

/// One projection of the step: a matrix for each expert.
struct Stack {
    matrices: Vec<Matrix>,
    /// `[n_expert][rows]`, or nothing.
    bias: Vec<f32>,
    rows: usize,
    out: SlotId,
}

/// An expert step with its weights.
pub(crate) struct Experts {
    stacks: Vec<Stack>,
    inputs: Inputs,
    kernels: Kernels,
    n_expert: usize,
    n_used: usize,
}

/// Buffers that expert steps share.
#[derive(Default)]
pub(crate) struct ExpertScratch {
    inputs: InputScratch,
    /// Where each expert's choices begin in the order by expert.
    starts: Vec<usize>,
    /// For each choice (token by token) its place in the order by expert.
    places: Vec<usize>,
    /// Input rows in the order by expert.
    gathered: Vec<f32>,
    /// For each stack its products, in the same order.
    products: Vec<Vec<f32>>,
}

/// Some rows of one expert's matrix.
struct Task {
    stack: usize,
    expert: usize,
    rows: Range<usize>,
}

impl Experts {
    /// Loads a step's matrices; the input's rows have `cols` elements, of which each token chose `n_used` experts.
    pub(crate) fn load(
        loader: &mut Loader<'_>,
        cols: usize,
        n_used: usize,
        projections: &[ExpertProjection],
    ) -> Result<Experts, ExecError> {
        let mut stacks = Vec::with_capacity(projections.len());
        for p in projections {
            let rows = loader.plan.slot_of(p.out).width / n_used;
            let matrices: Result<_, _> = p.experts.iter().map(|e| loader.matrix(*e, rows)).collect();
            let bias = loader.optional_vector(p.bias)?;
            stacks.push(Stack { matrices: matrices?, bias, rows, out: p.out });
        }
        let kernels = *loader.kernels;
        let inputs = Inputs::of(stacks.iter().flat_map(|s| &s.matrices), &kernels, cols);
        let n_expert = stacks.first().map_or(0, |s| s.matrices.len());
        Ok(Experts { stacks, inputs, kernels, n_expert, n_used })
    }

    /// The output slots, in the order that [`Experts::run`] wants them in.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = SlotId> {
        self.stacks.iter().map(|s| s.out)
    }

    /// Multiplies the rows of `n` tokens with the experts that each chose. `x` holds one row a token, or one a choice;
    /// an output has a row a choice.
    pub(crate) fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        chosen: &[f32],
        n: usize,
        outputs: &mut [(SlotId, Vec<f32>)],
        scratch: &mut ExpertScratch,
    ) -> Result<(), ExecError> {
        let k = self.inputs.k;
        let n_choices = n * self.n_used;
        self.order(&chosen[..n_choices], scratch);
        let ExpertScratch { inputs, starts, places, gathered, products } = scratch;
        let choices_per_row = if x.len() / k >= n_choices { 1 } else { self.n_used };
        gathered.resize(n_choices * k, 0.0);
        for (choice, place) in places.iter().enumerate() {
            gathered[place * k..][..k].copy_from_slice(&x[choice / choices_per_row * k..][..k]);
        }
        self.inputs.fill(&self.kernels, pool, gathered, n_choices, inputs);

        products.resize_with(self.stacks.len(), Vec::new);
        let targets: Vec<Output> = (self.stacks.iter().zip(&mut *products))
            .map(|(stack, products)| {
                products.resize(n_choices * stack.rows, 0.0);
                Output { ptr: products.as_mut_ptr(), first_row: 0, stride: stack.rows }
            })
            .collect();
        let tasks = self.tasks(starts, pool.threads());
        for expert in (0..self.n_expert).filter(|e| starts[*e] < starts[e + 1]) {
            self.stacks.iter().for_each(|stack| stack.matrices[expert].prefetch());
        }
        let failed = Mutex::new(None);
        pool.run(tasks.len(), &|task, _| {
            let Task { stack, expert, rows } = &tasks[task];
            let matrix = &self.stacks[*stack].matrices[*expert];
            let choices = starts[*expert]..starts[*expert + 1];
            let Output { ptr, stride, .. } = targets[*stack];
            let first = choices.start * stride + rows.start;
            let out = Output { ptr: ptr.wrapping_add(first), first_row: rows.start, stride };
            let columns = self.inputs.columns(matrix, &self.kernels, gathered, inputs, choices.clone());
            // SAFETY: the columns are those of the expert's choices, whose products lie within the buffer, and the task
            // alone has these rows of them.
            let result =
                unsafe { multiply(&self.kernels, matrix, k, rows.clone(), &columns, choices.len(), out) };
            if let Err(why) = result {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        });
        if let Some(why) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(ExecError::Weight { name: "of an expert step".to_owned(), why });
        }
        for ((stack, products), (_, out)) in self.stacks.iter().zip(products).zip(outputs) {
            let rows = stack.rows;
            for_row_chunks(pool, n_choices, rows, out, &|first, out: &mut [f32], _| {
                for (i, out) in out.chunks_exact_mut(rows).enumerate() {
                    let choice = first + i;
                    out.copy_from_slice(&products[places[choice] * rows..][..rows]);
                    if !stack.bias.is_empty() {
                        let bias = &stack.bias[self.expert(chosen[choice]) * rows..][..rows];
                        // SAFETY: the table's instruction set is available.
                        unsafe { (self.kernels.elementwise.add)(out, bias) };
                    }
                }
            });
        }
        Ok(())
    }

    /// An expert's number from its slot.
    fn expert(&self, chosen: f32) -> usize {
        (chosen as usize).min(self.n_expert - 1)
    }

    /// Sorts the choices by expert.
    fn order(&self, chosen: &[f32], scratch: &mut ExpertScratch) {
        let ExpertScratch { starts, places, .. } = scratch;
        starts.clear();
        starts.resize(self.n_expert + 1, 0);
        for choice in chosen {
            starts[self.expert(*choice) + 1] += 1;
        }
        for e in 0..self.n_expert {
            starts[e + 1] += starts[e];
        }
        let mut next = starts.clone();
        places.clear();
        places.extend(chosen.iter().map(|choice| {
            let next = &mut next[self.expert(*choice)];
            *next += 1;
            *next - 1
        }));
    }

    /// Shares the rows of the chosen experts out, as many tasks as keep all threads busy.
    fn tasks(&self, starts: &[usize], threads: usize) -> Vec<Task> {
        let busy: Vec<usize> = (0..self.n_expert).filter(|e| starts[*e] < starts[*e + 1]).collect();
        let total: usize = self.stacks.iter().map(|s| s.rows * busy.len()).sum();
        let wanted = if threads == 1 { total } else { total.div_ceil(threads * TASKS_PER_THREAD) };
        let mut tasks = Vec::new();
        for &expert in &busy {
            for (stack, s) in self.stacks.iter().enumerate() {
                let unit = s.matrices[expert].unit_rows();
                let per_task = wanted.next_multiple_of(unit).max(unit);
                for from in (0..s.rows).step_by(per_task) {
                    tasks.push(Task { stack, expert, rows: from..(from + per_task).min(s.rows) });
                }
            }
        }
        tasks
    }
}
