//! The thread pool: every chunk once, whatever is late, nested, concurrent, panicking or dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use llamay_cpu::pool::{Job, Pool};

fn assert_each_chunk_once(pool: &Pool, n_chunks: usize) {
    let calls: Vec<AtomicUsize> = (0..n_chunks).map(|_| AtomicUsize::new(0)).collect();
    let busy: Vec<AtomicBool> = (0..pool.threads()).map(|_| AtomicBool::new(false)).collect();
    pool.run(n_chunks, &|chunk, worker| {
        assert!(!busy[worker].swap(true, SeqCst), "two threads share number {worker}");
        calls[chunk].fetch_add(1, SeqCst);
        busy[worker].store(false, SeqCst);
    });
    assert!(calls.iter().all(|calls| calls.load(SeqCst) == 1));
}

/// out[i] = input[i % len] * i + salt, and how often `compute` was called.
struct Scale {
    salt: u32,
    calls: AtomicUsize,
}

impl Scale {
    fn new(salt: u32) -> Arc<Self> {
        Arc::new(Self { salt, calls: AtomicUsize::new(0) })
    }

    fn expected(&self, input: &[u32], i: usize) -> f32 {
        (input[i % input.len()].wrapping_mul(i as u32).wrapping_add(self.salt) >> 8) as f32
    }
}

impl Job for Scale {
    fn compute(&self, first: usize, input: &[u32], out: &mut [f32]) {
        self.calls.fetch_add(1, SeqCst);
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.expected(input, first + i);
        }
    }
}

fn assert_job_is_right(pool: &Pool, salt: u32, chunk_len: usize, len: usize) {
    let scale = Scale::new(salt);
    let job: Arc<dyn Job> = scale.clone();
    let input: Vec<u32> = (0..37u32).map(|i| i.wrapping_mul(0x9e37_79b9) + salt).collect();
    let mut out = vec![f32::NAN; len];
    pool.run_job(&job, &input, chunk_len, &mut out);
    for (i, out) in out.iter().enumerate() {
        assert_eq!(*out, scale.expected(&input, i), "element {i} of {len} in chunks of {chunk_len}");
    }
}

#[test]
fn every_chunk_runs_once_for_every_pool_and_count() {
    for threads in 1..=8 {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads);
        for n_chunks in [0, 1, 2, 3, 7, 8, 64, 1000] {
            assert_each_chunk_once(&pool, n_chunks);
        }
    }
}

#[test]
fn more_chunks_than_a_step_holds_are_several_steps() {
    assert_each_chunk_once(&Pool::new(2), 150_000);
}

#[test]
fn jobs_compute_every_element_for_every_shape() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        for (chunk_len, len) in
            [(1, 0), (1, 1), (8, 7), (8, 8), (8, 9), (16, 1000), (1, 70_000), (0, 5), (4096, 100)]
        {
            assert_job_is_right(&pool, threads as u32, chunk_len, len);
        }
    }
}

/// More threads than cores, so that workers are descheduled anywhere; both kinds of step in turn.
#[test]
fn many_tiny_steps_are_all_right() {
    for threads in [2, 3, 8] {
        let pool = Pool::new(threads);
        for step in 0..3000 {
            assert_job_is_right(&pool, step, 4, 4 * (1 + step as usize % 9) - 1);
            assert_each_chunk_once(&pool, step as usize % 5);
        }
    }
}

/// A job whose computation on any thread but the caller's waits for permission.
struct Held {
    caller: ThreadId,
    inner: Scale,
    entered: Mutex<Sender<()>>,
    permission: Mutex<Receiver<()>>,
    left: Sender<()>,
}

impl Job for Held {
    fn compute(&self, first: usize, input: &[u32], out: &mut [f32]) {
        if std::thread::current().id() == self.caller {
            // Until the worker has a chunk in hand, the caller must not do them all.
            while self.inner.calls.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            return self.inner.compute(first, input, out);
        }
        self.inner.calls.fetch_add(1, SeqCst);
        self.entered.lock().unwrap().send(()).unwrap();
        let released = self.permission.lock().unwrap().recv();
        // What it computes now, from its own step's input, is nobody's any more.
        self.inner.compute(first, input, out);
        assert_eq!(out[0], self.inner.expected(input, first));
        out.fill(f32::NEG_INFINITY);
        released.and(self.left.send(()).map_err(|_| std::sync::mpsc::RecvError)).unwrap();
    }
}

#[test]
fn a_laggard_is_gone_round_and_changes_nothing_when_it_wakes() {
    let pool = Pool::new(2);
    let (entered, has_entered) = channel();
    let (permit, permission) = channel();
    let (left, has_left) = channel();
    let held = Arc::new(Held {
        caller: std::thread::current().id(),
        inner: Scale { salt: 5, calls: AtomicUsize::new(0) },
        entered: Mutex::new(entered),
        permission: Mutex::new(permission),
        left,
    });
    let weak = Arc::downgrade(&held);
    let job: Arc<dyn Job> = held.clone();
    let input = vec![3, 1, 4];
    let mut first = vec![f32::NAN; 64];
    pool.run_job(&job, &input, 16, &mut first);

    // The step is complete although its worker still sits on a chunk.
    has_entered.recv().unwrap();
    let expected: Vec<f32> = (0..64).map(|i| held.inner.expected(&input, i)).collect();
    assert_eq!(first, expected);

    // Many steps go by, of both kinds; the laggard's slot and input must not be reused.
    for step in 0..500 {
        assert_job_is_right(&pool, step, 8, 100);
        assert_each_chunk_once(&pool, 5);
    }

    drop((job, held));
    permit.send(()).unwrap();
    has_left.recv().unwrap();
    for step in 0..500 {
        assert_job_is_right(&pool, step, 8, 100);
        assert_each_chunk_once(&pool, 5);
    }
    assert_eq!(first, expected);
    drop(pool);
    assert!(weak.upgrade().is_none(), "the pool keeps a job for ever");
}

#[test]
fn a_finished_job_is_let_go() {
    let pool = Pool::new(1);
    let scale = Scale::new(0);
    let job: Arc<dyn Job> = scale.clone();
    pool.run_job(&job, &[1], 1, &mut [0.0; 8]);
    drop(job);
    assert_eq!(Arc::strong_count(&scale), 1);
}

#[test]
fn a_panic_of_a_task_reaches_the_caller_and_the_pool_goes_on() {
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads);
        for panicking in 0..6 {
            let ran = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(6, &|chunk, _| {
                    if chunk == panicking {
                        std::panic::resume_unwind(Box::new(chunk)); // no message, no hook
                    }
                    ran.fetch_add(1, SeqCst);
                });
            }));
            assert_eq!(*outcome.unwrap_err().downcast::<usize>().unwrap(), panicking);
            assert!(threads == 1 || ran.load(SeqCst) == 5);
            assert_each_chunk_once(&pool, 9);
        }
    }
}

#[test]
fn a_panic_of_a_job_reaches_the_caller_and_the_pool_goes_on() {
    struct Fails;
    impl Job for Fails {
        fn compute(&self, first: usize, _: &[u32], _: &mut [f32]) {
            if first == 40 {
                std::panic::resume_unwind(Box::new(first));
            }
        }
    }
    let job: Arc<dyn Job> = Arc::new(Fails);
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads);
        for _ in 0..50 {
            let outcome = catch_unwind(AssertUnwindSafe(|| pool.run_job(&job, &[], 10, &mut [0.0; 100])));
            assert_eq!(*outcome.unwrap_err().downcast::<usize>().unwrap(), 40);
            assert_job_is_right(&pool, 1, 8, 100);
        }
    }
}

#[test]
fn a_step_within_a_step_runs_in_place() {
    let pool = Pool::new(3);
    let count = AtomicUsize::new(0);
    pool.run(4, &|_, worker| {
        pool.run(5, &|_, inner| {
            assert_eq!(inner, worker);
            count.fetch_add(1, SeqCst);
        });
        assert_job_is_right(&pool, 2, 3, 20);
    });
    assert_eq!(count.load(SeqCst), 20);
}

#[test]
fn a_task_may_use_another_pool() {
    let (outer, inner) = (Pool::new(2), Pool::new(2));
    outer.run(8, &|_, _| assert_each_chunk_once(&inner, 10));
}

#[test]
fn concurrent_callers_take_turns() {
    let pool = Pool::new(3);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for step in 0..300 {
                    assert_each_chunk_once(pool, 7);
                    assert_job_is_right(pool, caller * 1000 + step, 5, 33);
                }
            });
        }
    });
}

#[test]
fn pools_end_while_their_workers_spin_or_sleep() {
    for round in 0..100 {
        let pool = Pool::new(1 + round % 5);
        if round % 2 == 0 {
            assert_each_chunk_once(&pool, 3);
        }
    }
}

/// Each chunk ends only if another thread runs the other one at the same time: a lost wake-up would hang.
#[test]
fn parked_workers_are_woken() {
    let pool = Pool::new(2);
    let meeting = std::sync::Barrier::new(2);
    for _ in 0..200 {
        pool.run(2, &|_, _| {
            meeting.wait();
        });
    }
}
