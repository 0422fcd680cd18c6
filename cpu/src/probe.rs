//! What this machine can do at the most, measured: the roofs of a roofline.
//!
//! Three loops do nothing but the one thing that they measure. Each runs several times on all threads at once, and the
//! fastest pass counts, since whatever disturbs a pass makes it slower and nothing makes it faster.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use llamay_plan::{Ceilings, ExecError};

use crate::backend::available_memory;
use crate::isa::Isa;
use crate::memory::Arena;

/// Bytes of the array that stands for memory: more than the share of the last-level cache that a process gets on a server,
/// and soon read.
const MEMORY_SET: usize = 512 << 20;
/// Bytes of an array that stands for weights, at the least: less than that stays in the caches of the cores.
const LEAST_SET: usize = 32 << 20;
/// Bytes that one pass reads, the next part of the array each time: some milliseconds.
const PASS_BYTES: usize = 32 << 20;
/// How far ahead of its use a pass asks for memory, in bytes, in turns; 0 leaves it to the hardware. Which is best depends
/// on the machine, and the fastest pass counts.
const AHEADS: [usize; 4] = [0, 2048, 4096, 8192];

/// Time that the passes over one array may take, beside first touching it, and those of each kind of arithmetic.
const READ_TIME: Duration = Duration::from_millis(400);
const COMPUTE_TIME: Duration = Duration::from_millis(150);

/// Measures the ceilings of `threads` threads that run the kernels of `isa`: reading an array as large as `weights` bytes, and
/// one larger than caches; the byte products of those kernels in registers; fused multiply-adds of floats in registers.
/// Takes one to two seconds on a quiet machine.
///
/// An instruction set that this machine has not counts as the portable one.
///
/// # Errors
/// If there is no memory for the arrays.
pub fn ceilings(isa: Isa, threads: usize, weights: u64) -> Result<Ceilings, ExecError> {
    let threads = threads.max(1);
    let room = available_memory().map_or(MEMORY_SET, |free| usize::try_from(free / 4).unwrap_or(MEMORY_SET));
    let weights = usize::try_from(weights).unwrap_or(usize::MAX).max(LEAST_SET);
    let (sizes, rates) = read_rates(isa, threads, weights, MEMORY_SET.min(room))?;
    Ok(Ceilings {
        read: rates[0],
        read_set: sizes[0] as u64,
        memory: rates[1],
        int8_macs: compute_rate(threads, byte_dot(isa)),
        f32_macs: compute_rate(threads, float_fma(isa)),
    })
}

/// A loop over registers.
struct Compute {
    run: fn(u64),
    /// Turns of the loop in one pass: about a millisecond, which outlasts the start of the threads, and which a busy machine
    /// lets pass undisturbed now and then.
    turns: u64,
    /// Multiply-adds of a turn.
    macs: u64,
}

/// The byte products that the instruction set's matrix kernels are made of.
fn byte_dot(isa: Isa) -> Compute {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if isa.is_available() => x86::INT8_AVX2,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512x256 if isa.is_available() => x86::INT8_VNNI256,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512x512 if isa.is_available() => x86::INT8_VNNI512,
        _ => INT8_PORTABLE,
    }
}

/// The widest fused multiply-adds of the instruction set.
fn float_fma(isa: Isa) -> Compute {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512x256 if isa.is_available() => x86::F32_FMA256,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512x512 if isa.is_available() => x86::F32_FMA512,
        _ => F32_PORTABLE,
    }
}

const INT8_PORTABLE: Compute = Compute { run: int8_portable, turns: 20_000, macs: 256 };
const F32_PORTABLE: Compute = Compute { run: f32_portable, turns: 20_000, macs: 16 };

/// What the compiler makes of a dot product of bytes for any CPU of the target.
fn int8_portable(turns: u64) {
    let (w, a) = ([3i8; 256], [5i8; 256]);
    let mut sum = 0i32;
    for _ in 0..turns {
        let (w, a) = (black_box(&w), black_box(&a));
        let dot: i32 = w.iter().zip(a).map(|(w, a)| i32::from(*w) * i32::from(*a)).sum();
        sum = sum.wrapping_add(dot);
    }
    black_box(sum);
}

/// Fused multiply-adds by the language's own means, which are calls where the target does not promise the instruction.
fn f32_portable(turns: u64) {
    let (a, b) = black_box((0.5f32, 1.0f32));
    let mut chains = black_box([0.0f32; 16]);
    for _ in 0..turns {
        for x in &mut chains {
            *x = x.mul_add(a, b);
        }
    }
    black_box(chains);
}

/// Multiply-adds a second of all threads.
fn compute_rate(threads: usize, compute: Compute) -> f64 {
    let Compute { run, turns, macs } = compute;
    let (seconds, threads) = fastest_pass(vec![(); threads], COMPUTE_TIME, 8, &|(), _| run(black_box(turns)));
    threads as f64 * (turns * macs) as f64 / seconds
}

/// Bytes a second that all threads read of two arrays, of about `weights` and of `memory` bytes; and the arrays' sizes, of
/// which the second is no smaller.
fn read_rates(
    isa: Isa,
    threads: usize,
    weights: usize,
    memory: usize,
) -> Result<([usize; 2], [f64; 2]), ExecError> {
    // Each thread has a part of the array, and each part is read in whole passes.
    let part_pass = (PASS_BYTES / threads).next_multiple_of(64);
    let passes = |bytes: usize| bytes.div_ceil(part_pass * threads).max(1);
    let memory = passes(memory);
    let n_passes = [passes(weights).min(memory), memory];

    let total = memory * part_pass * threads;
    let short = || ExecError::OutOfMemory { what: "the probe of memory", bytes: total as u64 };
    let mut array = Arena::new(total).and_then(|mut arena| arena.take(total)).ok_or_else(short)?;
    let part_bytes = memory * part_pass;
    let parts = array.as_mut_slice().chunks_exact_mut(part_bytes);
    let mut parts: Vec<&mut [u64]> = parts.map(bytemuck::cast_slice_mut).collect();
    // The thread that writes a page first has it near.
    fastest_pass(parts.iter_mut().collect(), Duration::ZERO, 0, &|part, _| part.fill(1));
    let rates = n_passes.map(|n| {
        let words = part_pass / size_of::<u64>();
        let (seconds, threads) = fastest_pass(parts.iter().collect(), READ_TIME, n, &|part, pass| {
            let ahead = AHEADS[pass / n % AHEADS.len()];
            read(isa, &part[pass % n * words..][..words], ahead);
        });
        (part_pass * threads) as f64 / seconds
    });
    Ok((n_passes.map(|n| n * part_pass * threads), rates))
}

/// Reads all words, asking for them `ahead` bytes before their use unless that is 0.
fn read(isa: Isa, words: &[u64], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    if x86::read(isa, words, ahead) {
        return;
    }
    let _ = (isa, ahead);
    black_box(sum(words, |_| {}));
}

/// Adds all words up, in as many chains as a cache line has words; `ask` is told the line that is read.
#[inline(always)]
fn sum(words: &[u64], ask: impl Fn(*const u64)) -> u64 {
    let (lines, _) = words.as_chunks::<8>();
    let mut sums = [0u64; 8];
    for line in lines {
        ask(line.as_ptr());
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// Runs `pass(part, number)` on a thread for each part, all at once, again and again, for `time` but at least `least`
/// passes after the one of number 0, which only warms up. Gives the seconds of the fastest, from the common start until the
/// last thread is done, and the number of threads: fewer than parts where the system refuses more.
fn fastest_pass<T: Send>(
    parts: Vec<T>,
    time: Duration,
    least: usize,
    pass: &(dyn Fn(&mut T, usize) + Sync),
) -> (f64, usize) {
    // Made when it is known how many threads there are.
    let barrier = OnceLock::new();
    let over = AtomicBool::new(false);
    let run = |mut part: T, done: &mut dyn FnMut(usize, Duration)| {
        let barrier: &Barrier = barrier.wait();
        for number in 0.. {
            barrier.wait();
            if over.load(Ordering::Acquire) {
                break;
            }
            let start = Instant::now();
            pass(&mut part, number);
            barrier.wait();
            done(number, start.elapsed());
        }
    };
    let mut parts = parts.into_iter();
    let Some(own) = parts.next() else { return (f64::INFINITY, 0) };
    let mut fastest = Duration::MAX;
    let mut threads = 1;
    std::thread::scope(|scope| {
        for part in parts {
            let run = &run;
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || run(part, &mut |_, _| {}));
            threads += usize::from(spawned.is_ok());
        }
        barrier.get_or_init(|| Barrier::new(threads));
        let mut began = Instant::now();
        run(own, &mut |number, elapsed| {
            if number == 0 {
                began = Instant::now();
            } else {
                fastest = fastest.min(elapsed);
            }
            // The others wait at the barrier, and look when this thread has come to it too.
            over.store(number >= least && began.elapsed() >= time, Ordering::Release);
        });
    });
    (fastest.as_secs_f64(), threads)
}

// Not in WebAssembly, which has no threads; node 20 ends with a fault of its own behind these loops.
#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_has_ceilings_that_are_figures() {
        for isa in Isa::available() {
            let (sizes, rates) = read_rates(isa, 2, PASS_BYTES, 2 * PASS_BYTES).expect("64 MiB");
            assert_eq!(sizes, [PASS_BYTES, 2 * PASS_BYTES]);
            for rate in [rates[0], rates[1], compute_rate(2, byte_dot(isa)), compute_rate(2, float_fma(isa))]
            {
                assert!(rate.is_finite() && rate > 0.0, "{isa:?}: {rate}");
            }
        }
    }

    #[test]
    fn every_part_takes_part_in_every_pass() {
        let mut passes: Vec<Vec<usize>> = vec![Vec::new(); 3];
        let (seconds, threads) =
            fastest_pass(passes.iter_mut().collect(), Duration::ZERO, 4, &|seen, pass| seen.push(pass));
        assert!(seconds >= 0.0);
        assert_eq!(threads, 3);
        assert!(passes.iter().all(|seen| *seen == [0, 1, 2, 3, 4]), "{passes:?}");
    }

    #[test]
    fn a_sum_takes_every_word_in() {
        let words: Vec<u64> = (0..64).collect();
        assert_eq!(sum(&words, |_| {}), 64 * 63 / 2);
    }
}
