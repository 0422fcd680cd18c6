//! Measures the elementary functions over every f32 (minutes a function) and fails where one exceeds its bound:
//!
//!     cargo run --release -p llamay-cpu --example math_exhaustive [FUNCTION] [STRIDE]

#[path = "../tests/math_reference/mod.rs"]
mod math_reference;

use std::process::ExitCode;

use math_reference::{Bound, Function, functions};

/// The worst error over every `stride`-th f32 and where it is; the plain and the vector forms must agree as well.
fn worst(function: &Function, stride: u64, thread: u64, n_threads: u64) -> (f64, f32) {
    const BLOCK: u64 = 1 << 16;
    let mut worst = (0.0, 0.0);
    let n_samples = (1u64 << 32).div_ceil(stride);
    for block in (thread..n_samples.div_ceil(BLOCK)).step_by(n_threads as usize) {
        let samples = block * BLOCK..((block + 1) * BLOCK).min(n_samples);
        let xs: Vec<f32> = samples.map(|i| f32::from_bits((i * stride) as u32)).collect();
        let (mut ys, mut others) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
        (function.plain)(&xs, &mut ys);
        for (_, vector) in &function.vector {
            vector(&xs, &mut others);
            let differing = (0..xs.len())
                .find(|&i| ys[i].to_bits() != others[i].to_bits() && !(ys[i].is_nan() && others[i].is_nan()));
            if let Some(i) = differing {
                return (f64::INFINITY, xs[i]);
            }
        }
        for (&x, &y) in xs.iter().zip(&ys).filter(|(x, _)| (function.domain)(**x)) {
            let error = function.error(x, y);
            if error > worst.0 {
                worst = (error, x);
            }
        }
    }
    worst
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let stride = arguments.next().map_or(1, |s| s.parse().expect("STRIDE is a number"));
    let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut ok = true;
    for function in functions().iter().filter(|f| name.is_empty() || f.name == name) {
        let (error, x) = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..n_threads).map(|t| scope.spawn(move || worst(function, stride, t, n_threads))).collect();
            let results = threads.into_iter().map(|t| t.join().expect("a measuring thread panicked"));
            results.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
        });
        let unit = if matches!(function.bound, Bound::Ulp(_)) { "ulp" } else { "of |x|" };
        ok &= error <= function.limit();
        println!("{:13} {error:8.3e} {unit:6} at {x:e}  (bound {:e})", function.name, function.limit());
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
