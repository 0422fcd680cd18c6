//! The attention step over the paged cache.
//!
//! A query walks the pages that it sees from the first to the last. Each page gives values, a maximum and a sum, which are
//! merged left to right; so it makes no difference to a bit whether one thread walks them all (prefill) or several take
//! some pages each and the merge comes behind (decode in a long context).

use std::ops::Range;
use std::sync::Mutex;

use llamay_plan::{Batch, KV_PAGE, Run};

use crate::kernels::{Kernels, Query, TileArgs};
use crate::kv::KvCache;
use crate::math;
use crate::pool::Pool;

/// Queries of one task: enough to use a page's keys often while they are in L1, few enough to share out.
const QUERIES: usize = 16;
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
    /// Tile results of split tasks.
    partial: Vec<f32>,
    /// For each worker the states and tiles of a task.
    workers: Vec<Mutex<Vec<f32>>>,
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
        let shape = cache.shape(self.layer);
        let group = self.heads / shape.heads;
        let stride = shape.v_stride + 2;
        let runs = batch.runs();
        scratch.tasks.clear();
        let mut n_partial = 0;
        let mut work = 0;
        for (r, run) in runs.iter().enumerate() {
            let tokens_of_task = (QUERIES / group).max(1);
            for from in run.tokens.clone().step_by(tokens_of_task) {
                let tokens = from..(from + tokens_of_task).min(run.tokens.end);
                let first = self.seen(position(run, tokens.start)).start / KV_PAGE;
                let last = position(run, tokens.end - 1) / KV_PAGE + 1;
                work += tokens.len() * self.heads * shape.head_dim * KV_PAGE * (last - first);
                let split = run.tokens.len() == 1 && pool.threads() > 1 && last - first > SPLIT;
                for head_kv in 0..shape.heads {
                    if split {
                        for page in (first..last).step_by(SPLIT) {
                            let pages = page..(page + SPLIT).min(last);
                            let size = pages.len() * group * stride;
                            let (tokens, partial) = (tokens.clone(), Some(n_partial));
                            scratch.tasks.push(Task { run: r, tokens, head_kv, pages, partial });
                            n_partial += size;
                        }
                    } else {
                        let tokens = tokens.clone();
                        scratch.tasks.push(Task {
                            run: r,
                            tokens,
                            head_kv,
                            pages: first..last,
                            partial: None,
                        });
                    }
                }
            }
        }
        scratch.partial.resize(n_partial, 0.0);
        scratch.workers.resize_with(pool.threads(), Mutex::default);

        let shared = Shared {
            attend: self,
            kernels,
            cache,
            batch,
            runs: &runs,
            out: Ptr(out.as_mut_ptr()),
            partial: Ptr(scratch.partial.as_mut_ptr()),
        };
        let (tasks, workers) = (&scratch.tasks, &scratch.workers);
        let one = |i: usize, worker: usize| {
            let mut buffer = workers[worker].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // SAFETY: each task writes the output of its own tokens and heads, or its own part of `partial`.
            unsafe { shared.task(&tasks[i], &mut buffer) };
        };
        if work < INLINE_WORK {
            (0..tasks.len()).for_each(|i| one(i, 0));
        } else {
            pool.run(tasks.len(), &one);
        }
        self.merge_split(kernels, scratch, shape.v_stride, shape.head_dim, group, out);
    }

    /// Merges the tiles of split tasks, in order.
    fn merge_split(
        &self,
        kernels: &Kernels,
        scratch: &mut AttendScratch,
        v_stride: usize,
        head_dim: usize,
        group: usize,
        out: &mut [f32],
    ) {
        let stride = v_stride + 2;
        let mut state = vec![0.0; if scratch.partial.is_empty() { 0 } else { group * stride }];
        let mut tasks = scratch.tasks.iter().peekable();
        let mut first = true;
        while let Some(task) = tasks.next() {
            let Some(at) = task.partial else { continue };
            let tiles = &scratch.partial[at..at + task.pages.len() * group * stride];
            for page in tiles.chunks_exact(group * stride) {
                for (state, tile) in state.chunks_exact_mut(stride).zip(page.chunks_exact(stride)) {
                    if first {
                        state.copy_from_slice(tile);
                    } else {
                        // SAFETY: the table's instruction set is available.
                        unsafe { (kernels.elementwise.merge)(state, tile) };
                    }
                }
                first = false;
            }
            let more =
                tasks.peek().is_some_and(|next| next.tokens == task.tokens && next.head_kv == task.head_kv);
            if !more {
                let row = task.tokens.start * self.heads * head_dim;
                for (g, state) in state.chunks_exact(stride).enumerate() {
                    let head = task.head_kv * group + g;
                    let sink = self.sinks.get(head).copied();
                    finish(state, v_stride, sink, &mut out[row + head * head_dim..][..head_dim]);
                }
                first = true;
            }
        }
    }
}

fn position(run: &Run, token: usize) -> usize {
    run.start + token - run.tokens.start
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
    batch: &'a Batch<'a>,
    runs: &'a [Run],
    out: Ptr,
    partial: Ptr,
}

impl Shared<'_> {
    /// # Safety
    /// Nobody else has the task's tokens and heads of `out`, nor its part of `partial`.
    unsafe fn task(&self, task: &Task, buffer: &mut Vec<f32>) {
        let attend = self.attend;
        let shape = self.cache.shape(attend.layer);
        let group = attend.heads / shape.heads;
        let stride = shape.v_stride + 2;
        let run = &self.runs[task.run];
        let table = self.batch.tables[run.sequence][self.cache.group(attend.layer)];
        let n = task.tokens.len() * group;
        buffer.resize(2 * n * stride, 0.0);
        let (states, tiles) = buffer.split_at_mut(n * stride);
        let mut started = [false; 64];
        let mut queries = Vec::with_capacity(n);
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
                    let head = task.head_kv * group + g;
                    let q = &attend.q[(token * attend.heads + head) * shape.head_dim..][..shape.head_dim];
                    let out = match task.partial {
                        // SAFETY: the part holds `pages * group` tiles, and a split task has one token.
                        Some(at) => unsafe { self.partial.0.add(at + (i * group + g) * stride) },
                        // The first tile is the state.
                        None if !started[t] => states[(t * group + g) * stride..].as_mut_ptr(),
                        None => tiles[(t * group + g) * stride..].as_mut_ptr(),
                    };
                    queries.push((t, g, Query { q: q.as_ptr(), lo, hi, out }));
                }
            }
            let at = self.cache.page(attend.layer, table[page]);
            let size = self.cache.kind.bytes();
            let plain: Vec<Query> = queries.iter().map(|(_, _, q)| *q).collect();
            let args = TileArgs {
                head_dim: shape.head_dim,
                v_stride: shape.v_stride,
                scale: attend.scale,
                softcap: attend.softcap,
                kv: self.cache.kind,
                k: at.wrapping_add(shape.k(task.head_kv) * size),
                v: at.wrapping_add(shape.v(task.head_kv) * size),
                queries: &plain,
            };
            // SAFETY: the page has the layer's shape, and each query's output is this task's alone.
            unsafe { (self.kernels.tile)(&args) };
            if task.partial.is_some() {
                continue;
            }
            for &(t, g, _) in &queries {
                let at = (t * group + g) * stride;
                if started[t] {
                    // SAFETY: the table's instruction set is available.
                    unsafe {
                        (self.kernels.elementwise.merge)(
                            &mut states[at..at + stride],
                            &tiles[at..at + stride],
                        );
                    }
                }
            }
            for &(t, _, _) in &queries {
                started[t] = true;
            }
        }
        if task.partial.is_some() {
            return;
        }
        for (t, token) in task.tokens.clone().enumerate() {
            for g in 0..group {
                let head = task.head_kv * group + g;
                let at = (token * attend.heads + head) * shape.head_dim;
                // SAFETY: this token's head of `out` is the task's alone.
                let out = unsafe { std::slice::from_raw_parts_mut(self.out.0.add(at), shape.head_dim) };
                let sink = attend.sinks.get(head).copied();
                finish(&states[(t * group + g) * stride..][..stride], shape.v_stride, sink, out);
            }
        }
    }
}
