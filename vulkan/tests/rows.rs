//! The kernels that work on rows give the bits of the CPU's.

mod common;

use bytemuck::{Pod, Zeroable};
use common::device;
use llamay_formats::{Activation, MIN_AMAX, QuantizedRow, tree8};
use llamay_vulkan::{Buffer, Gpu};

// By its file, so that no backend needs another one to be built.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../cpu/src/math/mod.rs"]
mod math;

/// Push constants, as the kernels declare them.
macro_rules! push {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Pod, Zeroable)]
            struct $name { $($field: $type),* }
        )*
    };
}

push! {
    Quantize { x: u64, out: u64, k: u32, rows: u32, block: u32, record: u32 }
    Norm {
        x: u64, weight: u64, bias: u64, out: u64,
        len: u32, parts: u32, rows: u32, flags: u32, weight_parts: u32, eps: f32,
    }
    Rope {
        x: u64, cos: u64, sin: u64,
        width: u32, head_dim: u32, half_: u32, rows: u32, interleaved: u32, pad: u32,
    }
    Angles { tokens: u64, frequencies: u64, magnitudes: u64, cos: u64, sin: u64, half_: u32, rows: u32 }
    Elementwise { x: u64, y: u64, out: u64, n: u32, scale: f32 }
    Gather { x: u64, out: u64, rows: u64, width: u32, n: u32 }
    Route {
        x: u64, bias: u64, chosen: u64, weights: u64,
        n_expert: u32, n_used: u32, rows: u32, flags: u32, scoring: u32, scale: f32,
    }
    Combine { x: u64, weights: u64, out: u64, width: u32, n_used: u32, rows: u32, pad: u32 }
}

fn run(gpu: &Gpu, name: &str, constants: &[u32], push: &impl Pod, groups: [usize; 3]) {
    let kernel = gpu.kernel(name, constants).unwrap();
    gpu.run_once(&kernel, push, groups.map(|n| n as u32)).unwrap();
}

/// Room for `n` floats, filled with a number that no test expects, so that what is not written shows.
fn room(gpu: &Gpu, n: usize) -> Buffer {
    gpu.upload(&vec![-12345.0f32; n]).unwrap()
}

fn floats(gpu: &Gpu, buffer: &Buffer, n: usize) -> Vec<f32> {
    let mut values: Vec<f32> = gpu.read(buffer).unwrap();
    values.truncate(n);
    values
}

/// Compares on bits; of a NaN only that it is one, and a device may have zero for a subnormal.
fn check(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let same = got.to_bits() == want.to_bits()
            || (got.is_nan() && want.is_nan())
            || (want.is_subnormal() && *got == 0.0);
        assert!(same, "{what}, element {i}: {got:e} ({:#010x}) for {want:e}", got.to_bits());
    }
}

/// Numbers that repeat from run to run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 32) as u32
    }

    /// In -1..1.
    fn signed(&mut self) -> f32 {
        self.next() as i32 as f32 / 2_147_483_648.0
    }

    fn row(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.signed() * scale).collect()
    }

    /// Any number but a subnormal one.
    fn number(&mut self) -> f32 {
        let x = f32::from_bits(self.next());
        if x.is_subnormal() { 0.0 } else { x }
    }
}

/// The strided sum of docs/arithmetic.md.
fn strided_sum(x: &[f32], step: impl Fn(f32, f32) -> f32) -> f32 {
    let mut partial = [0.0f32; 8];
    for (i, v) in x.iter().enumerate() {
        partial[i % 8] = step(*v, partial[i % 8]);
    }
    tree8(partial)
}

/// Restated from docs/arithmetic.md, "Norms, rotation, gates".
fn norm(layer: bool, x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let n = x.len() as f32;
    let mean = if layer { strided_sum(x, |v, p| p + v) / n } else { 0.0 };
    let squares = strided_sum(x, |v, p| (v - mean).mul_add(v - mean, p));
    let r = math::rsqrt(squares / n + eps);
    let of = |i: usize| {
        let y = (x[i] - mean) * r;
        match (weight, bias) {
            (Some(w), Some(b)) => y.mul_add(w[i], b[i]),
            (Some(w), None) => y * w[i],
            (None, Some(b)) => y + b[i],
            (None, None) => y,
        }
    };
    (0..x.len()).map(of).collect()
}

#[test]
fn norms_have_the_bits_of_the_contract() {
    let Some(gpu) = device() else { return };
    let mut random = Random(1);
    let lengths = (1..=40).chain([63, 64, 65, 576, 1000, 1023, 1024, 1025, 1536, 4096, 5000]);
    for (case, len) in lengths.enumerate() {
        for layer in [false, true] {
            let (rows, parts) = ([1, 3][case % 2], [1, 2, 5][case % 3]);
            for (given, weight_parts) in [(0, 1), (1, 1), (2, 1), (3, 1), (1, parts), (3, parts)] {
                let (weighted, biased) = (given & 1 != 0, given & 2 != 0);
                let in_place = random.next().is_multiple_of(2);
                let eps = [1e-5, 1e-6, 1e-12][case % 3];
                let mut x = random.row(rows * parts * len, [1.0, 1e-4, 1000.0][case % 3]);
                // A row of equal numbers, and one with zeros of both signs.
                if case % 5 == 0 {
                    x[..len].fill(0.75);
                    x[(rows * parts - 1) * len] = -0.0;
                }
                let weight = random.row(weight_parts * len, 2.0);
                let bias = random.row(weight_parts * len, 2.0);
                let from = gpu.upload(&x).unwrap();
                let (w, b) = (gpu.upload(&weight).unwrap(), gpu.upload(&bias).unwrap());
                let to = room(&gpu, x.len());
                let to = if in_place { &from } else { &to };
                let push = Norm {
                    x: from.address(),
                    weight: if weighted { w.address() } else { 0 },
                    bias: if biased { b.address() } else { 0 },
                    out: to.address(),
                    len: len as u32,
                    parts: parts as u32,
                    rows: rows as u32,
                    flags: u32::from(layer) | u32::from(weighted) << 1 | u32::from(biased) << 2,
                    weight_parts: weight_parts as u32,
                    eps,
                };
                run(&gpu, "norm", &[], &push, [parts, rows, 1]);
                let want: Vec<f32> = x
                    .chunks_exact(len)
                    .enumerate()
                    .flat_map(|(i, x)| {
                        let of = i % parts % weight_parts * len..(i % parts % weight_parts + 1) * len;
                        let w = weighted.then(|| &weight[of.clone()]);
                        norm(layer, x, w, biased.then(|| &bias[of]), eps)
                    })
                    .collect();
                let what = format!("norm of {rows} x {parts} x {len}, layer {layer}, given {given}");
                check(&what, &floats(&gpu, to, x.len()), &want);
            }
        }
    }
}

#[test]
fn a_norm_keeps_a_nan_and_an_infinity() {
    let Some(gpu) = device() else { return };
    for bad in [f32::NAN, f32::INFINITY, 3e38] {
        for layer in [false, true] {
            let mut x = Random(2).row(70, 1.0);
            x[37] = bad;
            let from = gpu.upload(&x).unwrap();
            let (at, flags) = (from.address(), u32::from(layer));
            let push = Norm {
                x: at,
                weight: 0,
                bias: 0,
                out: at,
                len: 70,
                parts: 1,
                rows: 1,
                flags,
                weight_parts: 1,
                eps: 1e-6,
            };
            run(&gpu, "norm", &[], &push, [1, 1, 1]);
            check("norm", &floats(&gpu, &from, 70), &norm(layer, &x, None, None, 1e-6));
        }
    }
}

#[test]
fn rotation_turns_both_kinds_of_pairs_and_leaves_the_rest() {
    let Some(gpu) = device() else { return };
    let mut random = Random(3);
    for (heads, head_dim, half, rows) in
        [(1, 2, 1, 1), (3, 64, 32, 2), (9, 64, 16, 3), (5, 80, 37, 1), (32, 128, 64, 4)]
    {
        for interleaved in [false, true] {
            let width = heads * head_dim;
            let x = random.row(rows * width, 4.0);
            let (cos, sin) = (random.row(rows * half, 1.0), random.row(rows * half, 1.0));
            let slot = gpu.upload(&x).unwrap();
            let (c, s) = (gpu.upload(&cos).unwrap(), gpu.upload(&sin).unwrap());
            let push = Rope {
                x: slot.address(),
                cos: c.address(),
                sin: s.address(),
                width: width as u32,
                head_dim: head_dim as u32,
                half_: half as u32,
                rows: rows as u32,
                interleaved: u32::from(interleaved),
                pad: 0,
            };
            run(&gpu, "rope", &[], &push, [(heads * half).div_ceil(64), rows, 1]);
            let mut want = x.clone();
            for (row, want) in want.chunks_exact_mut(width).enumerate() {
                let (cos, sin) = (&cos[row * half..], &sin[row * half..]);
                for head in want.chunks_exact_mut(head_dim) {
                    for i in 0..half {
                        let (first, second) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                        let (a, b) = (head[first], head[second]);
                        head[first] = a.mul_add(cos[i], -(b * sin[i]));
                        head[second] = a.mul_add(sin[i], b * cos[i]);
                    }
                }
            }
            check(&format!("rope {heads} x {head_dim}"), &floats(&gpu, &slot, x.len()), &want);
        }
    }
}

#[test]
fn angles_are_those_of_position_times_frequency() {
    let Some(gpu) = device() else { return };
    let positions = [0u32, 1, 2, 63, 64, 4095, 131_071, 1_999_999];
    for half in [1, 32, 65] {
        let frequencies: Vec<f32> = (0..half).map(|i| 10000f32.powf(-(i as f32) / half as f32)).collect();
        let magnitudes: Vec<f32> = (0..positions.len()).map(|i| 1.0 + 0.1 * i as f32).collect();
        let tokens: Vec<u32> = positions.iter().flat_map(|p| [*p, 7]).collect();
        let n = positions.len() * half;
        let (t, f) = (gpu.upload(&tokens).unwrap(), gpu.upload(&frequencies).unwrap());
        let (m, c, s) = (gpu.upload(&magnitudes).unwrap(), room(&gpu, n), room(&gpu, n));
        let push = Angles {
            tokens: t.address(),
            frequencies: f.address(),
            magnitudes: m.address(),
            cos: c.address(),
            sin: s.address(),
            half_: half as u32,
            rows: positions.len() as u32,
        };
        run(&gpu, "angles", &[], &push, [half.div_ceil(64), positions.len(), 1]);
        let (mut sin, mut cos) = (Vec::new(), Vec::new());
        for (p, m) in positions.iter().zip(&magnitudes) {
            for f in &frequencies {
                let (s, c) = math::sin_cos(*p as f32 * f);
                sin.push(s * m);
                cos.push(c * m);
            }
        }
        check("sines", &floats(&gpu, &s, n), &sin);
        check("cosines", &floats(&gpu, &c, n), &cos);
    }
}

/// Pairs of all special numbers, and random ones of every magnitude and of ordinary ones.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let mut special =
        vec![0.0, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, f32::MAX, 1.0, 2.0, 0.5, 1e-30, 1e30];
    special.extend([1e-6, 6.999_999_5, 7.0, 7.000_000_5, 10.0, 87.3, 88.3, 88.8, 0.9375, 3.95, 5.6, 3e38]);
    special.extend(special.clone().iter().map(|v| -v));
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for a in &special {
        for b in &special {
            x.push(*a);
            y.push(*b);
        }
    }
    let mut random = Random(4);
    for i in 0..60_000 {
        let number = |r: &mut Random| match i % 3 {
            0 => r.number(),
            1 => r.signed() * 100.0,
            _ => r.signed() * 8.0,
        };
        x.push(number(&mut random));
        y.push(number(&mut random));
    }
    (x, y)
}

#[test]
fn elementwise_steps_are_those_of_the_host() {
    let Some(gpu) = device() else { return };
    let (x, y) = pairs();
    let (a, b) = (gpu.upload(&x).unwrap(), gpu.upload(&y).unwrap());
    let kinds: [fn(f32) -> f32; 6] =
        [math::silu, math::gelu_tanh, math::gelu_erf, math::relu, math::relu_squared, math::sigmoid];
    let test = |op: u32, kind: u32, scale: f32, want: &dyn Fn(f32, f32) -> f32| {
        let what = format!("operation {op}, kind {kind}, scale {scale:e}");
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| want(*x, *y)).collect();
        // More work than lanes, and with a workgroup for every 256 elements; elsewhere and in place.
        for (groups, in_place) in [(1, false), (3, true), (x.len().div_ceil(256), false)] {
            let to = if in_place { gpu.upload(&x).unwrap() } else { room(&gpu, x.len()) };
            let from = if in_place { to.address() } else { a.address() };
            let push = Elementwise { x: from, y: b.address(), out: to.address(), n: x.len() as u32, scale };
            run(&gpu, "elementwise", &[op, kind], &push, [groups, 1, 1]);
            check(&what, &floats(&gpu, &to, x.len()), &want);
        }
    };
    test(0, 0, 1.0, &|x, y| x + y);
    for scale in [0.22f32, -3.0, 1e-20] {
        test(1, 0, scale, &|x, y| y.mul_add(scale, x));
        test(2, 0, scale, &|x, _| x * scale);
    }
    for cap in [30.0f32, 50.0, 1.5] {
        test(3, 0, cap, &|x, _| cap * math::tanh(x / cap));
    }
    for (kind, f) in kinds.iter().enumerate() {
        test(4, kind as u32, 1.0, &|x, _| f(x));
        test(5, kind as u32, 1.0, &|x, y| f(x) * y);
    }
    test(6, 0, 1.0, &math::clipped_swiglu);
}

#[test]
fn gather_copies_rows_bit_by_bit() {
    let Some(gpu) = device() else { return };
    let mut random = Random(5);
    for (width, rows) in [(1, vec![0u32]), (64, vec![3, 3, 0]), (577, vec![9, 1, 4, 0, 8])] {
        let x: Vec<u32> = (0..10 * width).map(|_| random.next()).collect();
        let n = rows.len();
        let (from, list, to) = (gpu.upload(&x).unwrap(), gpu.upload(&rows).unwrap(), room(&gpu, n * width));
        let push = Gather {
            x: from.address(),
            out: to.address(),
            rows: list.address(),
            width: width as u32,
            n: n as u32,
        };
        run(&gpu, "gather", &[], &push, [width.div_ceil(64), n, 1]);
        let want: Vec<u32> = rows.iter().flat_map(|r| x[*r as usize * width..][..width].to_vec()).collect();
        assert_eq!(gpu.read::<u32>(&to).unwrap()[..n * width], want);
    }
}

#[test]
fn combine_is_a_chain_over_the_chosen() {
    let Some(gpu) = device() else { return };
    let mut random = Random(6);
    for (width, n_used, rows) in [(1, 1, 1), (64, 2, 3), (130, 8, 5), (577, 4, 2)] {
        let x = random.row(rows * n_used * width, 3.0);
        let weights = random.row(rows * n_used, 1.0);
        let (from, w, to) =
            (gpu.upload(&x).unwrap(), gpu.upload(&weights).unwrap(), room(&gpu, rows * width));
        let push = Combine {
            x: from.address(),
            weights: w.address(),
            out: to.address(),
            width: width as u32,
            n_used: n_used as u32,
            rows: rows as u32,
            pad: 0,
        };
        run(&gpu, "combine", &[], &push, [width.div_ceil(64), rows, 1]);
        let mut want = vec![0.0f32; rows * width];
        for (row, want) in want.chunks_exact_mut(width).enumerate() {
            for u in row * n_used..(row + 1) * n_used {
                for (o, x) in want.iter_mut().zip(&x[u * width..]) {
                    *o = weights[u].mul_add(*x, *o);
                }
            }
        }
        check("combine", &floats(&gpu, &to, rows * width), &want);
    }
}

fn softmax(x: &mut [f32]) {
    let max = x.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m });
    x.iter_mut().for_each(|v| *v = math::exp(*v - max));
    let r = math::recip(strided_sum(x, |v, p| p + v));
    x.iter_mut().for_each(|v| *v *= r);
}

/// Restated from `cpu/src/kernels/elementwise.rs`: the chosen experts and their weights.
fn route(scores: &[f32], bias: Option<&[f32]>, push: &Route) -> (Vec<f32>, Vec<f32>) {
    let mut shares = scores.to_vec();
    match push.scoring {
        0 => softmax(&mut shares),
        1 => {}
        _ => shares.iter_mut().for_each(|v| *v = math::sigmoid(*v)),
    }
    let (mut chosen, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..push.n_used {
        let (mut best, mut best_rank) = (None, 0.0);
        for (e, share) in shares.iter().enumerate() {
            let rank = share + bias.map_or(0.0, |b| b[e]);
            if (best.is_none() || rank > best_rank) && !chosen.contains(&(e as f32)) {
                (best, best_rank) = (Some(e), rank);
            }
        }
        let best = best.unwrap_or(0);
        chosen.push(best as f32);
        weights.push(shares[best]);
    }
    if push.scoring == 1 {
        softmax(&mut weights);
    }
    if push.flags & 2 != 0 {
        let r = math::recip(strided_sum(&weights, |v, p| p + v));
        weights.iter_mut().for_each(|v| *v *= r);
    }
    weights.iter_mut().for_each(|v| *v *= push.scale);
    (chosen, weights)
}

#[test]
fn routes_choose_the_experts_of_the_contract() {
    let Some(gpu) = device() else { return };
    let mut random = Random(7);
    let rows = 12;
    let counts = [1, 2, 7, 8, 9, 32, 60, 64, 65, 128, 257, 1024];
    for (case, n_expert) in counts.into_iter().enumerate() {
        let mut used: Vec<usize> = vec![1, 2, 4, 8, n_expert];
        used.retain(|n| *n <= n_expert.min(64));
        used.dedup();
        for (n_used, setting) in used.iter().flat_map(|n| (0..12).map(|s| (*n, s))) {
            let (scoring, flags) = (setting % 3, setting / 3);
            let mut x = random.row(rows * n_expert, 6.0);
            for (row, x) in x.chunks_exact_mut(n_expert).enumerate() {
                let mut some = |value: f32, odds: u32| {
                    x.iter_mut().for_each(|v| {
                        if random.next().is_multiple_of(odds) {
                            *v = value
                        }
                    });
                };
                match row {
                    // Ties, of all and of some; zeros of both signs.
                    0 => x.fill(0.5),
                    1 => x.iter_mut().for_each(|v| *v = v.round()),
                    2 => x.iter_mut().enumerate().for_each(|(i, v)| *v = if i % 2 == 0 { -0.0 } else { 0.0 }),
                    // No numbers: the first, some, all.
                    3 => x[0] = f32::NAN,
                    4 => some(f32::NAN, 4),
                    5 => x.fill(f32::NAN),
                    6 => some(f32::NEG_INFINITY, 3),
                    7 => some(f32::INFINITY, 9),
                    8 => x.fill(f32::NEG_INFINITY),
                    9 => x.iter_mut().for_each(|v| *v *= 30.0),
                    _ => {}
                }
            }
            let mut bias = random.row(n_expert, 1.0);
            if case % 2 == 0 {
                bias.fill(0.0);
            }
            if setting == 10 {
                bias[n_expert / 2] = f32::NAN;
            }
            let (from, b) = (gpu.upload(&x).unwrap(), gpu.upload(&bias).unwrap());
            let (chosen, weights) = (room(&gpu, rows * n_used), room(&gpu, rows * n_used));
            let biased = flags & 1 != 0;
            let push = Route {
                x: from.address(),
                bias: if biased { b.address() } else { 0 },
                chosen: chosen.address(),
                weights: weights.address(),
                n_expert: n_expert as u32,
                n_used: n_used as u32,
                rows: rows as u32,
                flags,
                scoring,
                scale: [1.0, 2.5][case % 2],
            };
            run(&gpu, "route", &[], &push, [rows, 1, 1]);
            let chosen = floats(&gpu, &chosen, rows * n_used);
            let weights = floats(&gpu, &weights, rows * n_used);
            for (row, x) in x.chunks_exact(n_expert).enumerate() {
                let want = route(x, biased.then_some(&bias[..]), &push);
                let what = format!("row {row}: {n_used} of {n_expert}, scoring {scoring}, flags {flags}");
                let part = row * n_used..(row + 1) * n_used;
                check(&format!("choice of {what}"), &chosen[part.clone()], &want.0);
                check(&format!("weights of {what}"), &weights[part], &want.1);
            }
        }
    }
}

#[test]
fn activations_are_quantised_as_by_the_host() {
    let Some(gpu) = device() else { return };
    let mut random = Random(8);
    for (kind, block) in [(Activation::I8x32, 32), (Activation::I8x256, 256)] {
        for k in [block, 2 * block, 3 * block, 5 * block, 9 * block, 17 * block] {
            let rows = 12;
            let mut x = random.row(rows * k, 3.0);
            for (row, x) in x.chunks_exact_mut(k).enumerate() {
                match row {
                    0 => x.fill(0.0),
                    1 => x.fill(-0.0),
                    // Around the least magnitude that counts.
                    2 => x.iter_mut().for_each(|v| *v *= MIN_AMAX / 6.0),
                    3 => x.fill(MIN_AMAX),
                    4 => x[k / 2] = f32::from_bits(MIN_AMAX.to_bits() - 1),
                    5 => x[block - 1] = f32::NAN,
                    6 => x[0] = f32::INFINITY,
                    7 => x[k - 1] = f32::from_bits(0xff80_0001),
                    8 => x.iter_mut().for_each(|v| *v *= 1e38),
                    // Ties: whole numbers and halves with a scale of a power of two.
                    9 => {
                        x.iter_mut().for_each(|v| *v = (*v * 40.0).round() * 0.5);
                        x.iter_mut().step_by(block).for_each(|v| *v = 127.0);
                    }
                    10 => x.iter_mut().for_each(|v| *v = if *v > 0.0 { *v * 1e-20 } else { *v }),
                    _ => {}
                }
            }
            let record = k / 4 + k / block + k / 16;
            let (from, to) = (gpu.upload(&x).unwrap(), room(&gpu, rows * record));
            let push = Quantize {
                x: from.address(),
                out: to.address(),
                k: k as u32,
                rows: rows as u32,
                block: block as u32,
                record: record as u32,
            };
            run(&gpu, "quantize", &[], &push, [k.div_ceil(256), rows, 1]);
            let got = gpu.read::<u32>(&to).unwrap();
            for (row, (x, got)) in x.chunks_exact(k).zip(got.chunks_exact(record)).enumerate() {
                let want = QuantizedRow::new(kind, x);
                let (quants, rest) = got.split_at(k / 4);
                let (scales, sums) = rest.split_at(k / block);
                let what = format!("{kind:?}, row {row} of {k}");
                let quants: Vec<i8> = quants.iter().flat_map(|w| w.to_le_bytes()).map(|b| b as i8).collect();
                assert_eq!(quants, want.quants(), "quants of {what}");
                let scales: Vec<f32> = scales.iter().map(|b| f32::from_bits(*b)).collect();
                check(&format!("scales of {what}"), &scales, want.scales());
                let sums: Vec<i16> = sums.iter().map(|s| *s as i32 as i16).collect();
                assert_eq!(sums, want.sums(), "sums of {what}");
            }
        }
    }
}
