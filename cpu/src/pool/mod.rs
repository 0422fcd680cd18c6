//! The thread pool of an inference step.
//!
//! A step is cut into chunks, which the calling thread and the workers take from a shared counter ([`board`] is the
//! protocol). Nobody waits for a worker that has not taken a chunk: a step on a busy machine degrades to what the caller
//! can do alone. Idle workers spin for some tens of microseconds, which is what lies between two steps of a decode, then
//! park.
//!
//! There are two kinds of step:
//! - [`Pool::run`] calls a borrowed closure. It waits for every chunk, also those of a worker that was descheduled.
//! - [`Pool::run_job`] computes an output vector from a [`Job`] that owns or shares all it reads. A chunk that a worker sits
//!   on for too long is computed again by the caller. Results are the same bits whoever computes them, so this is
//!   invisible. The late worker finds its result unwanted and drops it.

#![allow(unexpected_cfgs)] // `loom`: set by hand to run the model checker (tests/loom_pool.rs).

// Public for the model checker alone.
#[doc(hidden)]
pub mod board;
mod patience;
mod sync;
#[doc(hidden)]
pub mod threads;
mod topology;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::time::Instant;

use board::{Board, Claim, MAX_CHUNKS, Step};
use patience::Stopwatch;
use sync::{Arc, Mutex, SPINS, spin_loop, thread};
use threads::Threads;
pub use topology::{Topology, available_threads};

/// A computation whose chunks may be redone, for [`Pool::run_job`].
///
/// A worker may call [`Job::compute`] long after the step is over, hence `'static`: a job shares what it reads (weights in
/// an `Arc`, say) instead of borrowing it. It must not own the pool itself, which a worker cannot join.
pub trait Job: Send + Sync + 'static {
    /// Computes the elements `first..first + out.len()` of the output from the step's input, always to the same bits.
    /// `out` holds arbitrary values before. A panic passes to the caller of `run_job`.
    fn compute(&self, first: usize, input: &[u32], out: &mut [f32]);
}

/// A pool of threads, of which the calling thread is one.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held through a step: one step at a time. Within, the caller's memory for chunks that it computes again.
    caller: Mutex<Vec<f32>>,
    handles: Vec<thread::JoinHandle<()>>,
    /// Workers that a step wakes at most.
    most_awake: usize,
}

/// Threads that a step uses for each CPU. A few more than there are CPUs do no harm, and beside other processes they get more
/// of the machine; 64 on two CPUs cost three times the CPU time of two a token, most of it in waking and sleeping.
const THREADS_PER_CPU: usize = 2;

struct Shared {
    board: Board<Work>,
    threads: Threads,
}

/// What a step does.
struct Work {
    kind: Kind,
    /// The caller's copy of a job's input: a late worker must not read memory that the caller has gone on to change.
    input: Vec<u32>,
    /// The thread to wake when the step is done.
    caller: Option<thread::Thread>,
    /// The first panic of a worker.
    panic: std::sync::Mutex<Option<Box<dyn Any + Send>>>,
}

enum Kind {
    Idle,
    /// Valid while a chunk of the step is not done.
    Task(*const (dyn Fn(usize, usize) + Sync)),
    /// `out` is valid while a chunk is not done; chunk c is its elements from `c * chunk_len` on, `chunk_len` or what is
    /// left of `len`.
    Job {
        job: std::sync::Arc<dyn Job>,
        out: *mut f32,
        len: usize,
        chunk_len: usize,
    },
}

// SAFETY: the pointers are to a `Sync` closure and to floats of which each thread writes its own chunks.
unsafe impl Send for Work {}
// SAFETY: as above; the panic is behind a mutex.
unsafe impl Sync for Work {}

impl Work {
    fn idle() -> Self {
        Self { kind: Kind::Idle, input: Vec::new(), caller: None, panic: std::sync::Mutex::new(None) }
    }

    /// The panic is kept if it is the step's first.
    fn record(&self, outcome: std::thread::Result<()>) {
        if let Err(panic) = outcome {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller included: `new(1)` spawns none. Fewer where the system refuses more
    /// ([`Pool::threads`] tells).
    pub fn new(threads: usize) -> Self {
        let n_workers = threads.clamp(1, board::MAX_SLOTS - 1) - 1;
        let shared =
            Arc::new(Shared { board: Board::new(n_workers, Work::idle), threads: Threads::new(n_workers) });
        let mut handles = Vec::with_capacity(n_workers);
        for worker in 1..=n_workers {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("llamay-{worker}"));
            match builder.spawn(move || work(&shared, worker)) {
                Ok(handle) => handles.push(handle),
                Err(_) => break,
            }
        }
        // The model checker sees to small pools, and knows no files.
        let cpus = if cfg!(loom) { n_workers + 1 } else { Topology::of_this_process().cpus };
        Self { shared, caller: Mutex::new(Vec::new()), handles, most_awake: THREADS_PER_CPU * cpus - 1 }
    }

    /// The number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `task(chunk, worker)` once for every chunk in `0..n_chunks`, on the caller and the workers, and returns when all
    /// calls have. `worker < threads()` tells the calls that run at the same time apart (for scratch memory); the caller
    /// is 0. Calls from several threads take turns. A call from within a task or job of the same pool runs its chunks in
    /// place, under the worker's own number.
    ///
    /// # Panics
    /// With the first panic of a task, when the other chunks have run. The pool stays usable.
    pub fn run(&self, n_chunks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let inline = |worker| (0..n_chunks).for_each(|chunk| task(chunk, worker));
        if let Some(worker) = self.shared.threads.current_worker() {
            return inline(worker);
        }
        let _turn = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        let _inside = self.shared.threads.enter(0);
        if self.handles.is_empty() || n_chunks <= 1 {
            return inline(0);
        }
        for first in (0..n_chunks).step_by(MAX_CHUNKS) {
            let n = MAX_CHUNKS.min(n_chunks - first);
            self.run_step(n, &|chunk, worker| task(first + chunk, worker));
        }
    }

    fn run_step(&self, n_chunks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        // SAFETY: only the lifetime changes. This function does not return, nor unwind, before every chunk is done, and
        // workers call the task for chunks that are not.
        let task: &'static (dyn Fn(usize, usize) + Sync) = unsafe { std::mem::transmute(task) };
        // SAFETY: the caller's lock is held, and every step opened under it was waited for.
        let step = unsafe {
            self.shared.board.open(n_chunks, |work| {
                work.kind = Kind::Task(task);
                work.caller = Some(thread::current());
            })
        };
        self.shared.threads.wake(self.most_awake.min(n_chunks - 1), &self.handles);
        let mut outcome = Ok(());
        while let Some(chunk) = step.claim() {
            let this = catch_unwind(AssertUnwindSafe(|| task(chunk, 0)));
            step.done(1);
            outcome = outcome.and(this);
        }
        self.finish(step, outcome);
    }

    /// Computes `out` from `input` by `job`, in chunks of `chunk_len` elements (the last may be shorter; 0 counts as 1). A
    /// descheduled worker costs about two chunks' time, so a chunk is best some 5 to 50 µs. Allocates nothing once the pool
    /// has seen the largest input and chunk. Turns and nesting are as for [`Pool::run`].
    ///
    /// # Panics
    /// With a panic of the job, when the other chunks have been computed. The pool stays usable.
    pub fn run_job(&self, job: &std::sync::Arc<dyn Job>, input: &[u32], chunk_len: usize, out: &mut [f32]) {
        // No more chunks than a step has.
        let chunk_len = chunk_len.max(out.len().div_ceil(MAX_CHUNKS)).max(1);
        let inline = |out: &mut [f32]| {
            out.chunks_mut(chunk_len).enumerate().for_each(|(i, out)| job.compute(i * chunk_len, input, out));
        };
        if self.shared.threads.current_worker().is_some() {
            return inline(out);
        }
        let mut spare = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        let _inside = self.shared.threads.enter(0);
        let n_chunks = out.len().div_ceil(chunk_len);
        if self.handles.is_empty() || n_chunks <= 1 {
            return inline(out);
        }
        self.run_job_step(job, input, chunk_len, out, &mut spare);
    }

    fn run_job_step(
        &self,
        job: &std::sync::Arc<dyn Job>,
        input: &[u32],
        chunk_len: usize,
        out: &mut [f32],
        spare: &mut Vec<f32>,
    ) {
        let len = out.len();
        let n_chunks = len.div_ceil(chunk_len);
        // From here to the end the output is reached by this pointer alone.
        let out = out.as_mut_ptr();
        // SAFETY: the caller's lock is held, and every step opened under it was waited for.
        let step = unsafe {
            self.shared.board.open(n_chunks, |work| {
                work.kind = Kind::Job { job: std::sync::Arc::clone(job), out, len, chunk_len };
                work.input.clear();
                work.input.extend_from_slice(input);
                work.caller = Some(thread::current());
            })
        };
        self.shared.threads.wake(self.most_awake.min(n_chunks - 1), &self.handles);

        let mut outcome = Ok(());
        let mut stopwatch = Stopwatch::start();
        while let Some(chunk) = step.claim() {
            step.take(chunk);
            let range = chunk_range(chunk, chunk_len, len);
            // SAFETY: within `out`; the chunk is claimed by this thread and taken, so nobody else writes it.
            let result = unsafe { std::slice::from_raw_parts_mut(out.add(range.start), range.len()) };
            let this = catch_unwind(AssertUnwindSafe(|| job.compute(range.start, input, result)));
            step.done(1);
            outcome = outcome.and(this);
            if range.len() == chunk_len {
                stopwatch.lap();
            }
        }

        // What is left is in the hands of workers. One that runs needs no longer than this thread needs for a chunk.
        let deadline = stopwatch.deadline();
        while !step.is_done() && !cfg!(loom) && Instant::now() < deadline {
            spin_loop();
        }
        if !step.is_done() {
            spare.resize(chunk_len, 0.0);
            // The last chunk first: it was claimed last and has the longest to go.
            for chunk in (0..n_chunks).rev() {
                if step.is_taken(chunk) {
                    continue;
                }
                let range = chunk_range(chunk, chunk_len, len);
                let result = &mut spare[..range.len()];
                let this = catch_unwind(AssertUnwindSafe(|| job.compute(range.start, input, result)));
                if step.take(chunk) {
                    // SAFETY: within `out`, and `take` gave this thread alone the right to write the chunk.
                    unsafe { out.add(range.start).copy_from_nonoverlapping(result.as_ptr(), range.len()) };
                    step.done(1);
                    outcome = outcome.and(this);
                }
            }
        }
        self.finish(step, outcome);
    }

    /// Waits until the step is done, lets go of what it holds, and passes its panic on.
    fn finish(&self, step: Step<'_, Work>, outcome: std::thread::Result<()>) {
        let mut spins = 0;
        while !step.is_done() {
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                // Whoever does the last chunk unparks this thread, now or before.
                thread::park();
            }
        }
        let from_worker = step.with(|work| work.panic.lock().unwrap_or_else(PoisonError::into_inner).take());
        step.retire(|work| work.kind = Kind::Idle);
        if let Some(panic) = outcome.err().or(from_worker) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.threads.stop(&self.handles);
        for handle in self.handles.drain(..) {
            // Workers catch the panics of what they run, so there is none to pass on.
            let _ = handle.join();
        }
    }
}

/// The elements of chunk `chunk` of `len` in all.
fn chunk_range(chunk: usize, chunk_len: usize, len: usize) -> std::ops::Range<usize> {
    let start = chunk * chunk_len;
    start..len.min(start + chunk_len)
}

/// The life of a worker.
fn work(shared: &Shared, worker: usize) {
    let _inside = shared.threads.enter(worker);
    let mut scratch = Vec::new();
    while shared.threads.wait_for_work(worker, || shared.board.has_work()) {
        while let Some(claim) = shared.board.claim() {
            if execute(&claim, worker, &mut scratch) {
                claim.with(|work| work.caller.as_ref().map(thread::Thread::unpark));
            }
        }
    }
}

/// Does the claimed chunk; true if that completed the step.
fn execute(claim: &Claim<'_, Work>, worker: usize, scratch: &mut Vec<f32>) -> bool {
    claim.with(|work| match &work.kind {
        Kind::Idle => false,
        Kind::Task(task) => {
            // SAFETY: this chunk is claimed and not done, so `run_step` has not returned.
            let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (**task)(claim.chunk(), worker) }));
            work.record(outcome);
            claim.done()
        }
        Kind::Job { job, out, len, chunk_len } => {
            let range = chunk_range(claim.chunk(), *chunk_len, *len);
            if scratch.len() < range.len() {
                scratch.resize(range.len(), 0.0);
            }
            let result = &mut scratch[..range.len()];
            let outcome = catch_unwind(AssertUnwindSafe(|| job.compute(range.start, &work.input, result)));
            if !claim.take() {
                return false;
            }
            // SAFETY: `take` gave this thread alone the right to write this chunk of `out`, which is valid because the
            // chunk is not done.
            unsafe { out.add(range.start).copy_from_nonoverlapping(result.as_ptr(), range.len()) };
            work.record(outcome);
            claim.done()
        }
    })
}
