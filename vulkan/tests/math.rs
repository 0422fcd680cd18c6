//! `shaders/math.glsl` gives the bits of the CPU's functions, and of IEEE 754 where it builds an operation itself.

mod common;

use bytemuck::{Pod, Zeroable};
use common::device;
use llamay_formats::{Format, round_even};
use llamay_vulkan::Gpu;

// By its file, so that no backend needs another one to be built.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../cpu/src/math/mod.rs"]
mod math;

/// Push constants of `math_test.comp`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Push {
    x: u64,
    y: u64,
    out: u64,
    n: u32,
    pad: u32,
}

/// The function of `math_test.comp`: its constant 0.
#[derive(Clone, Copy)]
enum Function {
    Div,
    Recip,
    Sqrt,
    Rsqrt,
    Exp,
    Tanh,
    Erf,
    F16ToF32,
    F32ToF16,
    Sin,
    Cos,
    RoundEven,
}

/// What the device makes of each pair; `y` may be empty for functions of one number.
fn on_device(gpu: &Gpu, function: Function, x: &[u32], y: &[u32]) -> Vec<u32> {
    const MOST: usize = 1 << 20;
    let module = include_bytes!("shaders/math_test.spv");
    let kernel = gpu.kernel_of("math_test", module, &[function as u32]).unwrap();
    let mut out = Vec::with_capacity(x.len());
    for at in (0..x.len()).step_by(MOST) {
        let n = MOST.min(x.len() - at);
        let a = gpu.upload(&x[at..at + n]).unwrap();
        let b = (!y.is_empty()).then(|| gpu.upload(&y[at..at + n]).unwrap());
        let to = gpu.zeroed(4 * n).unwrap();
        let b = b.as_ref().map_or(a.address(), |b| b.address());
        let push = Push { x: a.address(), y: b, out: to.address(), n: n as u32, pad: 0 };
        gpu.run_once(&kernel, &push, [(n as u32).div_ceil(256), 1, 1]).unwrap();
        out.extend_from_slice(&gpu.read::<u32>(&to).unwrap()[..n]);
    }
    out
}

/// Compares on bits; of a NaN only that it is one.
fn check(what: &str, x: &[u32], y: &[u32], got: &[u32], want: impl Fn(f32, f32) -> f32) {
    assert_eq!(x.len(), got.len());
    for (i, (x, got)) in x.iter().zip(got).enumerate() {
        let y = y.get(i).copied().unwrap_or(0);
        let want = want(f32::from_bits(*x), f32::from_bits(y));
        let same = *got == want.to_bits() || (want.is_nan() && f32::from_bits(*got).is_nan());
        assert!(same, "{what} of {x:#010x}, {y:#010x} is {got:#010x}, not {:#010x}", want.to_bits());
    }
}

/// Compares a function of one number with the host's, over all values of `x`.
fn check_one(gpu: &Gpu, what: &str, function: Function, x: &[u32], want: impl Fn(f32) -> f32) {
    check(what, x, &[], &on_device(gpu, function, x, &[]), |x, _| want(x));
}

fn flush(y: f32) -> f32 {
    if y.abs() < f32::MIN_POSITIVE { 0.0 } else { y }
}

/// Numbers that repeat from run to run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }

    /// Any bits but those of a subnormal, which devices may take for zero.
    fn bits(&mut self) -> u32 {
        let bits = self.next();
        if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
    }
}

/// Zeros, infinities, NaN, the ends of the range, and mantissas at their ends with exponents all over.
fn hard_numbers() -> Vec<u32> {
    let mantissas =
        [0, 1, 2, 3, 0x2a_aaaa, 0x3f_ffff, 0x40_0000, 0x40_0001, 0x55_5555, 0x7f_fffd, 0x7f_fffe, 0x7f_ffff];
    let exponents = [1, 2, 3, 23, 24, 25, 63, 64, 101, 102, 103, 120];
    let exponents = exponents.iter().flat_map(|e| [*e, 254 + 1 - e]).chain(124..=131);
    let mut all = vec![0, 0x7f80_0000, 0x7fc0_0000];
    all.extend(exponents.flat_map(|e| mantissas.map(|m| e << 23 | m)));
    let negative: Vec<u32> = all.iter().map(|b| b | 0x8000_0000).collect();
    all.extend(negative);
    all
}

/// [`hard_numbers`] and `n` random ones.
fn numbers(n: usize) -> Vec<u32> {
    let mut random = Random(1);
    let mut all = hard_numbers();
    all.extend((0..n).map(|_| random.bits()));
    all
}

/// Pairs of mantissas (N, M) of which the quotient is nearest to the middle between two floats: |N 2^s − k M| ≤ 3 for an
/// odd k, so that the quotient is k/2 ulps and hardly more. One in `step` of all divisors.
fn hardest_quotients(step: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut dividends, mut divisors) = (Vec::new(), Vec::new());
    for m in ((1u64 << 23)..(1 << 24)).step_by(step) {
        let zeros = m.trailing_zeros();
        let odd = m >> zeros;
        // Newton's iteration for the inverse modulo 2^64 doubles the bits that are right, at first three.
        let inverse = (0..5).fold(odd, |y, _| y.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(y))));
        for (s, j) in [24u32, 25].iter().flat_map(|s| [-3i64, -2, -1, 1, 2, 3].map(|j| (*s, j))) {
            if zeros >= 2 || j & ((1 << zeros) - 1) != 0 {
                continue;
            }
            let modulus = 1u64 << (s - zeros);
            let first = ((-(j >> zeros)) as u64).wrapping_mul(inverse) & (modulus - 1);
            for k in (first..1 << 25).step_by(modulus as usize).filter(|k| *k >= 1 << 24 && k % 2 == 1) {
                let scaled = (k * m).wrapping_add_signed(j);
                let n = scaled >> s;
                if n << s == scaled && n >> 23 == 1 && (n < m) == (s == 25) {
                    dividends.push(0x3f80_0000 | (n as u32 & 0x7f_ffff));
                    divisors.push(0x3f80_0000 | (m as u32 & 0x7f_ffff));
                }
            }
        }
    }
    (dividends, divisors)
}

#[test]
fn division_rounds_correctly() {
    let Some(gpu) = device() else { return };
    let quotient = |x: f32, y: f32| flush(x / y);
    let hard = hard_numbers();
    let x: Vec<u32> = hard.iter().flat_map(|x| vec![*x; hard.len()]).collect();
    let y: Vec<u32> = hard.iter().flat_map(|_| hard.clone()).collect();
    check("div", &x, &y, &on_device(&gpu, Function::Div, &x, &y), quotient);

    let mut random = Random(2);
    let x: Vec<u32> = (0..2_000_000).map(|_| random.bits()).collect();
    let y: Vec<u32> = (0..2_000_000).map(|_| random.bits()).collect();
    check("div", &x, &y, &on_device(&gpu, Function::Div, &x, &y), quotient);

    let (x, y) = hardest_quotients(17);
    assert!(x.len() > 500_000, "{} pairs", x.len());
    check("div", &x, &y, &on_device(&gpu, Function::Div, &x, &y), quotient);

    // Quotients around the least normal number, where a subnormal may round up to it.
    let mut random = Random(3);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for _ in 0..500_000 {
        let m = random.next() & 0x7f_ffff;
        let n = m.wrapping_add(random.next() % 7).wrapping_sub(3) & 0x7f_ffff;
        let exponent = 40 + random.next() % 80;
        x.push(exponent << 23 | n);
        y.push((exponent + 125 + random.next() % 3) << 23 | m);
    }
    check("div", &x, &y, &on_device(&gpu, Function::Div, &x, &y), quotient);
}

#[test]
fn reciprocals_round_correctly_for_every_mantissa() {
    let Some(gpu) = device() else { return };
    check_one(&gpu, "recip", Function::Recip, &numbers(1_000_000), math::recip);
    let all: Vec<u32> = (0x3f80_0000..0x4000_0000).collect();
    check_one(&gpu, "recip", Function::Recip, &all, math::recip);
}

#[test]
fn square_roots_round_correctly_for_every_mantissa() {
    let Some(gpu) = device() else { return };
    check_one(&gpu, "sqrt", Function::Sqrt, &numbers(1_000_000), f32::sqrt);
    check_one(&gpu, "rsqrt", Function::Rsqrt, &numbers(1_000_000), math::rsqrt);
    // Mantissas in [1, 4) are all that there is; exponents only move the result.
    for first in [0x3f80_0000u32, 0x4000_0000] {
        let all: Vec<u32> = (first..first + 0x80_0000).collect();
        check_one(&gpu, "sqrt", Function::Sqrt, &all, f32::sqrt);
    }
}

#[test]
fn functions_are_those_of_the_host() {
    let Some(gpu) = device() else { return };
    let mut x = numbers(1_000_000);
    // Where they do most: within a hundred of zero, and around their seams.
    let mut random = Random(4);
    x.extend((0..1_000_000).map(|_| ((random.next() as i32) as f32 * (100.0 / 2_147_483_648.0)).to_bits()));
    for seam in [-87.3f32, 88.722_83, 0.9375, 3.95, 10.0, 88.376_26, 5.0, 7.0] {
        let bits = seam.to_bits();
        x.extend((bits - 200..bits + 200).flat_map(|b| [b, b ^ 0x8000_0000]));
    }
    check_one(&gpu, "exp", Function::Exp, &x, math::exp);
    check_one(&gpu, "tanh", Function::Tanh, &x, math::tanh);
    check_one(&gpu, "erf", Function::Erf, &x, math::erf);
    x.extend((0..500_000).map(|_| (random.next() as f32 * (math::MAX_ANGLE / 4_294_967_296.0)).to_bits()));
    check_one(&gpu, "sin", Function::Sin, &x, |x| math::sin_cos(x).0);
    check_one(&gpu, "cos", Function::Cos, &x, |x| math::sin_cos(x).1);
}

#[test]
fn halves_are_decoded_and_rounded_exactly() {
    let Some(gpu) = device() else { return };
    let halves: Vec<u32> = (0..0x1_0000).collect();
    let decoded = on_device(&gpu, Function::F16ToF32, &halves, &[]);
    let bytes: Vec<u8> = halves.iter().flat_map(|h| (*h as u16).to_le_bytes()).collect();
    let mut want = vec![0.0; halves.len()];
    Format::F16.decode(&bytes, &mut want);
    for ((h, got), want) in halves.iter().zip(&decoded).zip(&want) {
        let same = *got == want.to_bits() || (want.is_nan() && f32::from_bits(*got).is_nan());
        assert!(same, "{h:#06x} is {got:#010x}, not {:#010x}", want.to_bits());
    }

    // All floats that halves hold, and what is next to these and to the middles between them.
    let finite = || decoded.iter().filter(|b| *b & 0x7f80_0000 != 0x7f80_0000);
    let mut x: Vec<u32> = finite().flat_map(|b| [*b, b + 1, b + 0xfff, b + 0x1000, b + 0x1001]).collect();
    // Middles between subnormal halves, which are less than 2^13 floats apart or more.
    x.extend((0..2049u32).flat_map(|k| {
        let middle = ((2 * k + 1) as f32 * 2f32.powi(-25)).to_bits();
        [middle - 1, middle, middle + 1].map(|b| b | (k & 1) << 31)
    }));
    x.extend(numbers(1_000_000));
    x.retain(|b| b & 0x7f80_0000 != 0 || b & 0x7f_ffff == 0);
    let got = on_device(&gpu, Function::F32ToF16, &x, &[]);
    // The host refuses what is infinite as a half, which 65520, the middle between the last two, is the least to be.
    let fits = |x: f32| x.abs() < 65520.0;
    let values: Vec<f32> = x.iter().map(|b| f32::from_bits(*b)).collect();
    let finite: Vec<f32> = values.iter().map(|x| if fits(*x) { *x } else { 0.0 }).collect();
    let mut bytes = vec![0; 2 * x.len()];
    Format::F16.encode(&finite, None, &mut bytes).unwrap();
    for ((x, got), want) in values.iter().zip(&got).zip(bytes.as_chunks().0) {
        let infinity = 0x7c00 | x.to_bits() >> 16 & 0x8000;
        let want = if fits(*x) { u32::from(u16::from_le_bytes(*want)) } else { infinity };
        let same = if x.is_nan() { got & 0x7fff > 0x7c00 } else { *got == want };
        assert!(same, "{:#010x} as a half is {got:#06x}, not {want:#06x}", x.to_bits());
    }
}

#[test]
fn ties_round_to_even() {
    let Some(gpu) = device() else { return };
    let mut random = Random(5);
    let mut x: Vec<u32> = (-600..600).map(|i| (i as f32 * 0.25).to_bits()).collect();
    x.extend((0..100_000).map(|_| ((random.next() as i32) as f32 / 1024.0).to_bits()));
    x.retain(|b| f32::from_bits(*b).abs() < 4_194_304.0);
    check_one(&gpu, "round_even", Function::RoundEven, &x, round_even);
}
