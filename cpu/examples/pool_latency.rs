//! Prints what the pool's hand-over costs, and what a descheduled worker does to a decode-like chain of steps:
//!
//!     cargo run --release -p llamay-cpu --example pool_latency [THREADS]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use llamay_cpu::pool::{Job, Pool, Topology, available_threads};

/// About as many dependent operations as fit into the time of a chunk.
struct Work {
    rounds_per_element: u32,
}

impl Work {
    fn element(&self, seed: u32) -> f32 {
        (0..self.rounds_per_element).fold(seed, |x, _| black_box(x.wrapping_mul(1_664_525).wrapping_add(1)))
            as f32
    }
}

impl Job for Work {
    fn compute(&self, first: usize, input: &[u32], out: &mut [f32]) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.element(input[0] + (first + i) as u32);
        }
    }
}

fn no_pause() {}

/// The times of many calls, in order of size; `before` is not counted.
fn time(calls: usize, before: impl Fn(), mut call: impl FnMut()) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..calls)
        .map(|_| {
            before();
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

fn print(name: &str, times: &[Duration]) {
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let mean = us(times.iter().sum::<Duration>()) / times.len() as f64;
    let (median, late) = (us(times[times.len() / 2]), us(times[times.len() - 1 - times.len() / 1000]));
    println!("{name:44} median {median:9.2} us   mean {mean:9.2} us   99.9 % {late:9.2} us");
}

/// Steps of 8 chunks for each thread, as of a decode of a small model, by both kinds of run.
fn chain(pool: &Pool, label: &str) {
    let job = Arc::new(Work { rounds_per_element: 20 });
    let chunk_len = 256;
    let mut out = vec![0.0; chunk_len * pool.threads() * 8];
    let input = vec![1; 1024];
    let n_chunks = out.len() / chunk_len;
    print(
        &format!("{label}: run"),
        &time(10_000, no_pause, || {
            pool.run(n_chunks, &|chunk, _| {
                let mut out = [0.0; 256];
                job.compute(chunk * chunk_len, &input, &mut out);
                black_box(out);
            });
        }),
    );
    let job: Arc<dyn Job> = job;
    print(
        &format!("{label}: run_job"),
        &time(10_000, no_pause, || pool.run_job(&job, &input, chunk_len, &mut out)),
    );
}

fn main() {
    let threads =
        std::env::args().nth(1).map_or_else(available_threads, |n| n.parse().expect("THREADS is a number"));
    println!("{}; using {threads}", Topology::of_this_process());
    let pool = Pool::new(threads);

    print("empty run, one chunk a thread", &time(100_000, no_pause, || pool.run(threads, &|_, _| {})));
    print("empty run, 16 chunks a thread", &time(100_000, no_pause, || pool.run(16 * threads, &|_, _| {})));
    let job: Arc<dyn Job> = Arc::new(Work { rounds_per_element: 0 });
    let (input, mut out) = (vec![0; 1024], vec![0.0; 4 * threads]);
    print(
        "empty run_job, 4 KiB of input",
        &time(100_000, no_pause, || pool.run_job(&job, &input, 4, &mut out)),
    );
    let pause = || std::thread::sleep(Duration::from_millis(1));
    print("run that wakes parked workers", &time(200, pause, || pool.run(threads, &|_, _| {})));

    chain(&Pool::new(1), "steps, 1 thread, 1/2 of the work");
    chain(&pool, "steps, quiet");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        chain(&Pool::new(1), "steps, 1 thread, one core burnt");
        chain(&pool, "steps, one core burnt");
        stop.store(true, Relaxed);
    });
}
