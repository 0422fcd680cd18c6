//! The attention step over the paged cache.
//!
//! A query walks the pages that it sees from the first to the last. Each page gives values, a maximum and a sum, which are
//! merged left to right; so it makes no difference to a bit whether one thread walks them all (prefill) or several take
//! some pages each and the merge comes behind (decode in a long context).

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use llamay_formats::Activation;
use llamay_plan::{Batch, KV_BLOCK, KV_PAGE, Run};

use crate::kernels::{ActLayout, Kernels, MergeArgs, Query, TileArgs, scratch_len};
use crate::kv::{KvCache, PageShape, turn_query};
use crate::math;
use crate::pool::Pool;

/// Queries of one task: enough that decoding a page's elements, once a task, is a twentieth of the products with them; few
/// enough that their states and the page stay in L2. A whole number of the kernel's groups for the usual 1 to 6 query heads
/// a key head.
const QUERIES: usize = 60;
/// Queries of one task where there are so few that threads would go without.
const FEW_QUERIES: usize = 12;
/// Tasks for each thread that are worth smaller ones: the last ones to end keep the others waiting less.
const TASKS_PER_THREAD: usize = 4;
/// Pages of one task where a single token's pages are shared out.
const SPLIT: usize = 4;
/// Products below which a hand-off costs more than it saves: some microseconds' worth.
const INLINE_WORK: usize = 1 << 16;

/// What the step asks for.
pub(crate) struct Attend<'a> {
    pub(crate) layer: usize,
    pub(crate) heads: usize,
    pub(crate) scale: f32,
    pub(crate) window: Option<u32>,
    pub(crate) softcap: Option<f32>,
    /// A score for each head that has no value, or none at all.
    pub(crate) sinks: &'a [f32],
    /// `[tokens][heads * head_dim]`.
    pub(crate) q: &'a [f32],
}

/// Buffers that attention steps share.
#[derive(Default)]
pub(crate) struct AttendScratch {
    tasks: Vec<Task>,
    splits: Vec<Split>,
    /// Tiles of split tokens.
    partial: Vec<f32>,
    workers: Vec<Mutex<Worker>>,
}

/// What a worker needs for a task.
#[derive(Default)]
struct Worker {
    queries: Vec<Query>,
    /// One a query.
    states: Vec<f32>,
    /// A query row as whole blocks.
    padded: Vec<f32>,
    /// Queries for a quantised cache.
    records: Vec<u32>,
    scratch: Vec<f32>,
}

/// Some tokens of one run against one key head.
#[derive(Clone, Debug)]
struct Task {
    run: usize,
    /// Of the batch.
    tokens: Range<usize>,
    head_kv: usize,
    pages: Range<usize>,
    /// Where the tiles go, if others take the rest of the pages.
    partial: Option<usize>,
}

/// A token and key head whose pages are shared out.
#[derive(Clone, Debug)]
struct Split {
    token: usize,
    head_kv: usize,
    n_pages: usize,
    /// Where the first page's tiles are.
    at: usize,
}

impl Attend<'_> {
    /// Positions that the token at `position` sees.
    fn seen(&self, position: usize) -> Range<usize> {
        let first = self.window.map_or(0, |w| (position + 1).saturating_sub(w as usize));
        first..position + 1
    }

    /// Attention of every token; `out` is `[tokens][heads * head_dim]`.
    pub(crate) fn run(
        &self,
        kernels: &Kernels,
        pool: &Pool,
        cache: &KvCache,
        batch: &Batch<'_>,
        scratch: &mut AttendScratch,
        out: &mut [f32],
    ) {
        let runs = batch.runs();
        let shape = cache.shape(self.layer);
        let work = self.share_out(pool.threads(), shape, &runs, scratch);
        scratch.workers.resize_with(pool.threads(), Mutex::default);
        let shared = Shared {
            attend: self,
            kernels,
            cache,
            shape,
            batch,
            runs: &runs,
            out: Ptr(out.as_mut_ptr()),
            partial: Ptr(scratch.partial.as_mut_ptr()),
        };
        let (tasks, splits, workers) = (&scratch.tasks, &scratch.splits, &scratch.workers);
        let with_worker = |worker: usize, f: &dyn Fn(&mut Worker)| {
            f(&mut workers[worker].lock().unwrap_or_else(PoisonError::into_inner));
        };
        // The last tasks have the most pages, and go first.
        let attend = |i: usize, worker: usize| {
            // SAFETY: each task writes the output of its own tokens and heads, or its own part of `partial`.
            with_worker(worker, &|w| unsafe { shared.task(&tasks[tasks.len() - 1 - i], w) });
        };
        run(pool, work, tasks.len(), &attend);

        let group = self.heads / shape.heads;
        let tiles: usize = splits.iter().map(|s| s.n_pages * group).sum();
        let merge = |i: usize, worker: usize| {
            // SAFETY: each merge writes the output of its own token and head.
            with_worker(worker, &|w| unsafe { shared.merge(&splits[i / group], i % group, w) });
        };
        run(pool, tiles * shape.v_stride, splits.len() * group, &merge);
    }

    /// Cuts the step into tasks; returns the number of products.
    fn share_out(
        &self,
        threads: usize,
        shape: PageShape,
        runs: &[Run],
        scratch: &mut AttendScratch,
    ) -> usize {
        let group = self.heads / shape.heads;
        let stride = shape.v_stride + 2;
        scratch.tasks.clear();
        scratch.splits.clear();
        let (mut n_partial, mut work) = (0, 0);
        for (r, run) in runs.iter().enumerate() {
            let fair = run.tokens.len() * self.heads / (threads * TASKS_PER_THREAD);
            let queries = if threads == 1 { QUERIES } else { fair.clamp(FEW_QUERIES, QUERIES) };
            let tokens_of_task = (queries / group).max(1);
            for from in run.tokens.clone().step_by(tokens_of_task) {
                let tokens = from..(from + tokens_of_task).min(run.tokens.end);
                let first = self.seen(position(run, tokens.start)).start / KV_PAGE;
                let last = position(run, tokens.end - 1) / KV_PAGE + 1;
                work += tokens.len() * self.heads * shape.head_dim * KV_PAGE * (last - first);
                let split = run.tokens.len() == 1 && threads > 1 && last - first > SPLIT;
                for head_kv in 0..shape.heads {
                    let task =
                        |pages, partial| Task { run: r, tokens: tokens.clone(), head_kv, pages, partial };
                    if !split {
                        scratch.tasks.push(task(first..last, None));
                        continue;
                    }
                    let n_pages = last - first;
                    scratch.splits.push(Split { token: tokens.start, head_kv, n_pages, at: n_partial });
                    for page in (first..last).step_by(SPLIT) {
                        let pages = page..(page + SPLIT).min(last);
                        let size = pages.len() * group * stride;
                        scratch.tasks.push(task(pages, Some(n_partial)));
                        n_partial += size;
                    }
                }
            }
        }
        if scratch.partial.len() < n_partial {
            scratch.partial.resize(n_partial, 0.0);
        }
        work
    }
}

/// Runs tasks on all threads, or right here if they have little to do.
fn run(pool: &Pool, work: usize, n_tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
    if work < INLINE_WORK {
        (0..n_tasks).for_each(|i| task(i, 0));
    } else {
        pool.run(n_tasks, task);
    }
}

fn position(run: &Run, token: usize) -> usize {
    run.start + token - run.tokens.start
}

/// At least `n` floats of a buffer that only grows.
fn room<T: Clone + Default>(buffer: &mut Vec<T>, n: usize) -> &mut [T] {
    if buffer.len() < n {
        buffer.resize(n, T::default());
    }
    &mut buffer[..n]
}

/// Values over the sum. A sink is merged as one more tile, of one position with the value zero.
fn finish(state: &[f32], v_stride: usize, sink: Option<f32>, out: &mut [f32]) {
    let (m, l) = (state[v_stride], state[v_stride + 1]);
    let Some(sink) = sink else {
        let r = math::recip(l);
        for (o, v) in out.iter_mut().zip(state) {
            *o = v * r;
        }
        return;
    };
    let highest = if sink > m { sink } else { m };
    let (a, b) = (math::exp(m - highest), math::exp(sink - highest));
    let r = math::recip(l * a + b);
    for (o, v) in out.iter_mut().zip(state) {
        *o = v * a * r;
    }
}

/// A buffer of which tasks write disjoint parts.
#[derive(Clone, Copy)]
struct Ptr(*mut f32);

// SAFETY: tasks write disjoint parts through it.
unsafe impl Send for Ptr {}
// SAFETY: as above.
unsafe impl Sync for Ptr {}

/// What all tasks of a step read.
struct Shared<'a> {
    attend: &'a Attend<'a>,
    kernels: &'a Kernels,
    cache: &'a KvCache,
    shape: PageShape,
    batch: &'a Batch<'a>,
    runs: &'a [Run],
    out: Ptr,
    partial: Ptr,
}

impl Shared<'_> {
    /// # Safety
    /// Nobody else has the task's tokens and heads of `out`, nor its part of `partial`.
    unsafe fn task(&self, task: &Task, worker: &mut Worker) {
        let (attend, shape) = (self.attend, self.shape);
        let group = attend.heads / shape.heads;
        let stride = shape.v_stride + 2;
        let run = &self.runs[task.run];
        let table = self.batch.tables[run.sequence][self.cache.group(attend.layer)];
        let n = task.tokens.len() * group;
        let records = shape.kind.is_quantized().then(|| self.record_queries(task, worker));
        let Worker { queries, states, records: recorded, scratch, .. } = worker;
        let scratch = room(scratch, scratch_len(shape.head_dim, shape.v_stride, n)).as_mut_ptr();
        let states = room(states, n * stride);
        for (i, page) in task.pages.clone().enumerate() {
            queries.clear();
            for (t, token) in task.tokens.clone().enumerate() {
                let seen = attend.seen(position(run, token));
                let lo = seen.start.saturating_sub(page * KV_PAGE);
                let hi = seen.end.saturating_sub(page * KV_PAGE).min(KV_PAGE);
                if lo >= hi {
                    continue;
                }
                for g in 0..group {
                    let at = t * group + g;
                    let q = match records {
                        Some(words) => at * words,
                        None => (token * attend.heads + task.head_kv * group + g) * shape.head_dim,
                    };
                    let (out, merge) = match task.partial {
                        // Of a task that has part of the pages every page is kept.
                        Some(partial) => (partial + (i * group + g) * stride, false),
                        None => (at * stride, page > seen.start / KV_PAGE),
                    };
                    queries.push(Query { q, lo, hi, out, merge });
                }
            }
            let at = self.cache.page(attend.layer, table[page]);
            let args = TileArgs {
                head_dim: shape.head_dim,
                v_stride: shape.v_stride,
                scale: attend.scale,
                softcap: attend.softcap,
                kv: shape.kind,
                k: at.wrapping_add(shape.k(task.head_kv)),
                v: at.wrapping_add(shape.v(task.head_kv)),
                q: if records.is_some() { recorded.as_ptr().cast() } else { attend.q.as_ptr() },
                out: if task.partial.is_some() { self.partial.0 } else { states.as_mut_ptr() },
                queries,
                scratch,
            };
            // SAFETY: the page has the layer's shape, each query's output is this task's alone, and a split task has one
            // token, so that its part of `partial` holds a tile for each page and head.
            unsafe { (self.kernels.tile)(&args) };
        }
        if task.partial.is_some() {
            return;
        }
        for (i, state) in states.chunks_exact(stride).enumerate() {
            // SAFETY: passed on to the caller.
            unsafe { self.finish(task.tokens.start + i / group, task.head_kv * group + i % group, state) };
        }
    }

    /// Quantises a task's queries; returns the words of each one's record.
    fn record_queries(&self, task: &Task, worker: &mut Worker) -> usize {
        let (attend, head_dim) = (self.attend, self.shape.head_dim);
        let group = attend.heads / self.shape.heads;
        let layout = ActLayout::new(Activation::I8x32, head_dim.next_multiple_of(KV_BLOCK));
        let records = room(&mut worker.records, task.tokens.len() * group * layout.words);
        worker.padded.resize(layout.k, 0.0);
        for (i, record) in records.chunks_exact_mut(layout.words).enumerate() {
            let head = task.head_kv * group + i % group;
            let row = ((task.tokens.start + i / group) * attend.heads + head) * head_dim;
            turn_query(&attend.q[row..row + head_dim], &mut worker.padded);
            // SAFETY: the table's instruction set is available.
            unsafe { (self.kernels.elementwise.record)(&worker.padded, &layout, record) };
        }
        layout.words
    }

    /// Merges the pages of a split token for head `g` of a key head's.
    ///
    /// # Safety
    /// The tiles are there, and nobody else has this token's head of `out`.
    unsafe fn merge(&self, split: &Split, g: usize, worker: &mut Worker) {
        let group = self.attend.heads / self.shape.heads;
        let stride = self.shape.v_stride + 2;
        let step = group * stride;
        let len = (split.n_pages - 1) * step + stride;
        // SAFETY: the split's tiles: for each page one a head.
        let tiles = unsafe { std::slice::from_raw_parts(self.partial.0.add(split.at + g * stride), len) };
        let state = room(&mut worker.states, stride);
        let factors = &mut worker.scratch;
        // SAFETY: the table's instruction set is available.
        unsafe {
            (self.kernels.merge)(&mut MergeArgs {
                tiles,
                step,
                v_stride: self.shape.v_stride,
                factors,
                state,
            });
        }
        // SAFETY: passed on to the caller.
        unsafe { self.finish(split.token, split.head_kv * group + g, state) };
    }

    /// Writes a token's head of the output.
    ///
    /// # Safety
    /// Nobody else has it.
    unsafe fn finish(&self, token: usize, head: usize, state: &[f32]) {
        let (attend, shape) = (self.attend, self.shape);
        let at = (token * attend.heads + head) * shape.head_dim;
        // SAFETY: within the output, and this caller's alone.
        let out = unsafe { std::slice::from_raw_parts_mut(self.out.0.add(at), shape.head_dim) };
        finish(state, shape.v_stride, attend.sinks.get(head).copied(), out);
    }
}
