//! The pool under loom, which runs every interleaving (within a bound on preemptions) and checks every access:
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p llamay-cpu --test loom_pool --release
#![allow(unexpected_cfgs)]
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter;
use std::sync::atomic::Ordering::Relaxed;

use llamay_cpu::pool::board::{Board, Step};
use llamay_cpu::pool::threads::Threads;
use llamay_cpu::pool::{Job, Pool};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::thread;

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What the steps of these models write: a cell for each chunk, in which loom notices any unordered access.
type Results = Arc<[UnsafeCell<usize>; 2]>;

fn results() -> Results {
    Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)])
}

fn write(results: &Results, chunk: usize, value: usize) {
    results[chunk].with_mut(|cell| {
        // SAFETY: the model's point: loom panics if this is not exclusive.
        unsafe { *cell += value }
    });
}

fn assert_results(results: &Results, expected: usize) {
    for cell in results.iter() {
        // SAFETY: as in `write`.
        cell.with(|cell| assert_eq!(unsafe { *cell }, expected));
    }
}

/// Each step has its own description, results and expected value, so that a mix-up shows.
struct Description {
    value: usize,
    results: Results,
}

fn open<'a>(board: &'a Board<Description>, value: usize, results: &Results) -> Step<'a, Description> {
    // SAFETY: the models open one step at a time, by one thread, and end it before the next.
    unsafe {
        board.open(2, |description| {
            description.value = value;
            description.results = Arc::clone(results);
        })
    }
}

fn wait(step: &Step<'_, Description>) {
    while !step.is_done() {
        thread::yield_now();
    }
}

fn new_board() -> loom::sync::Arc<Board<Description>> {
    loom::sync::Arc::new(Board::new(1, || Description { value: 0, results: results() }))
}

/// A worker as in `run`: what it claims it does. Two steps are open in turn; it may sleep through any part of them.
#[test]
fn every_chunk_of_a_step_is_done_once() {
    explore(3, || {
        let board = new_board();
        let worker = {
            let board = board.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Some(claim) = board.claim() {
                        claim.with(|d| write(&d.results, claim.chunk(), d.value));
                        claim.done();
                    }
                }
            })
        };
        for value in 1..=2 {
            let results = results();
            let step = open(&board, value, &results);
            while let Some(chunk) = step.claim() {
                write(&results, chunk, value);
                step.done(1);
            }
            wait(&step);
            assert_results(&results, value);
            step.retire(|d| d.value = 0);
        }
        worker.join().unwrap();
    });
}

/// A worker as in `run_job`, and a caller without patience, which redoes whatever is not taken.
#[test]
fn a_laggard_changes_nothing_after_its_chunk_was_redone() {
    explore(3, || {
        let board = new_board();
        let worker = {
            let board = board.clone();
            thread::spawn(move || {
                if let Some(claim) = board.claim() {
                    // Reading before taking: the caller may meanwhile have finished this step, and the next one.
                    let value = claim.with(|d| d.value);
                    if claim.take() {
                        claim.with(|d| write(&d.results, claim.chunk(), value));
                        claim.done();
                    }
                }
            })
        };
        // Three steps on a board of two slots: the third must not go to the slot that the laggard holds.
        for value in 1..=3 {
            let results = results();
            let step = open(&board, value, &results);
            while let Some(chunk) = step.claim() {
                assert!(step.take(chunk));
                write(&results, chunk, value);
                step.done(1);
            }
            for chunk in (0..2).rev() {
                if !step.is_taken(chunk) && step.take(chunk) {
                    write(&results, chunk, value);
                    step.done(1);
                }
            }
            wait(&step);
            assert_results(&results, value);
            step.retire(|d| d.value = 0);
        }
        worker.join().unwrap();
    });
}

/// A lost wake-up would leave the worker parked for ever: a deadlock, which loom reports.
#[test]
fn a_worker_that_goes_to_sleep_sees_the_work_or_is_woken() {
    explore(3, || {
        let threads = loom::sync::Arc::new(Threads::new(1));
        let posted = loom::sync::Arc::new(AtomicBool::new(false));
        let worker = {
            let (threads, posted) = (threads.clone(), posted.clone());
            thread::spawn(move || {
                assert!(threads.wait_for_work(1, || posted.load(Relaxed)));
            })
        };
        posted.store(true, Relaxed);
        threads.wake(1, std::slice::from_ref(&worker));
        worker.join().unwrap();
    });
}

#[test]
fn a_worker_that_goes_to_sleep_sees_the_end_or_is_woken() {
    explore(3, || {
        let threads = loom::sync::Arc::new(Threads::new(1));
        let worker = {
            let threads = threads.clone();
            thread::spawn(move || assert!(!threads.wait_for_work(1, || false)))
        };
        threads.stop(std::slice::from_ref(&worker));
        worker.join().unwrap();
    });
}

/// The whole pool: hand-off, parking, waking, the last chunk's wake-up of the caller, and the end of the workers.
#[test]
fn steps_of_a_pool_end_and_so_does_the_pool() {
    explore(2, || {
        let pool = Pool::new(2);
        for _ in 0..2 {
            let calls = [Counter::new(0), Counter::new(0)];
            pool.run(2, &|chunk, worker| {
                assert!(worker < 2);
                calls[chunk].fetch_add(1, Relaxed);
            });
            assert!(calls.iter().all(|calls| calls.load(Relaxed) == 1));
        }
    });
}

#[test]
fn jobs_of_a_pool_compute_their_output() {
    struct AddTo;
    impl Job for AddTo {
        fn compute(&self, first: usize, input: &[u32], out: &mut [f32]) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = (first + i) as f32 + input[0] as f32;
            }
        }
    }
    explore(2, || {
        let pool = Pool::new(2);
        let job: Arc<dyn Job> = Arc::new(AddTo);
        for step in 1..=2 {
            let mut out = [0.0; 2];
            pool.run_job(&job, &[step], 1, &mut out);
            assert_eq!(out, [step as f32, step as f32 + 1.0]);
        }
    });
}
