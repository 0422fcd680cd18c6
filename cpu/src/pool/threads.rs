//! Sleeping, waking and telling the threads of a pool apart.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::sync::{AtomicBool, INSIDE, SPINS, fence, spin_loop, thread};

/// How the workers of a pool wait.
pub struct Threads {
    asleep: Box<[Flag]>,
    stop: AtomicBool,
}

/// A flag on cache lines of its own.
#[repr(align(128))]
struct Flag(AtomicBool);

impl Threads {
    /// For workers 1 to `n_workers`.
    pub fn new(n_workers: usize) -> Self {
        Self {
            asleep: (0..n_workers).map(|_| Flag(AtomicBool::new(false))).collect(),
            stop: AtomicBool::new(false),
        }
    }

    /// Returns true when there may be work, false when the pool is being dropped. Spins, then parks.
    pub fn wait_for_work(&self, worker: usize, has_work: impl Fn() -> bool) -> bool {
        let asleep = &self.asleep[worker - 1].0;
        let decided = || if has_work() { Some(true) } else { self.stop.load(Relaxed).then_some(false) };
        loop {
            for _ in 0..SPINS {
                if let Some(answer) = decided() {
                    return answer;
                }
                spin_loop();
            }
            // Either this thread sees the work, or who posts it sees this thread asleep: each writes, fences, then reads.
            asleep.store(true, Relaxed);
            fence(SeqCst);
            let mut answer = decided();
            while answer.is_none() && asleep.load(Relaxed) {
                thread::park();
                answer = decided();
            }
            asleep.store(false, Relaxed);
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    /// Wakes those of the first `wanted` workers that sleep. Call after posting the work.
    pub fn wake(&self, wanted: usize, workers: &[thread::JoinHandle<()>]) {
        fence(SeqCst);
        for (Flag(asleep), worker) in self.asleep.iter().zip(workers).take(wanted) {
            if asleep.load(Relaxed) && asleep.swap(false, Relaxed) {
                worker.thread().unpark();
            }
        }
    }

    /// Ends the workers, once they are through with what they have claimed.
    pub fn stop(&self, workers: &[thread::JoinHandle<()>]) {
        self.stop.store(true, Relaxed);
        // No flag to look at: the token of `unpark` reaches a worker that is only about to park.
        workers.iter().for_each(|worker| worker.thread().unpark());
    }

    /// This thread's number in this pool, if it is running a chunk for it.
    pub fn current_worker(&self) -> Option<usize> {
        let pool = std::ptr::from_ref(self).addr();
        INSIDE.with(|inside| inside.borrow().iter().rev().find(|entry| entry.0 == pool).map(|entry| entry.1))
    }

    /// Makes this thread number `worker` of this pool until the guard is dropped.
    pub fn enter(&self, worker: usize) -> Inside {
        INSIDE.with(|inside| inside.borrow_mut().push((std::ptr::from_ref(self).addr(), worker)));
        Inside
    }
}

/// Leaves the pool entered last.
pub struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.borrow_mut().pop());
    }
}
