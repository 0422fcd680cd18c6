//! Steps over single rows. The source is the same for every instruction set; the compiler vectorises it, and since it
//! never reorders or fuses float operations by itself, the bits are the same too.

use llamay_formats::{Activation, block_scale, round_even, tree8};
use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs, Scoring};

use crate::acts::{ActLayout, block32, block256};
use crate::math;

/// A norm and its weights.
pub(crate) struct Norm<'a> {
    pub(crate) kind: NormKind,
    /// Elements of a part.
    pub(crate) len: usize,
    /// `len` elements, or `len` for each part of a row; none for ones.
    pub(crate) weight: &'a [f32],
    /// As `weight`; none for zeros.
    pub(crate) bias: &'a [f32],
    pub(crate) eps: f32,
}

/// How a router's scores become weights.
pub(crate) struct Router<'a> {
    /// Added to the scores for the choice; may be empty.
    pub(crate) bias: &'a [f32],
    pub(crate) scoring: Scoring,
    pub(crate) normalize: bool,
    pub(crate) scale: f32,
}

/// Defines the table of row kernels and, for an instruction set, the wrappers that switch its features on.
macro_rules! kernels {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        /// The row kernels of one instruction set.
        ///
        /// Each may be called only where the CPU has the set's features.
        #[derive(Clone, Copy)]
        pub(crate) struct Elementwise {
            $($(#[$doc])* pub(crate) $name: unsafe fn($($arg: $type),*),)*
        }

        /// The same without any features.
        pub(crate) fn portable() -> Elementwise {
            Elementwise { $($name),* }
        }

        /// Defines `fn elementwise() -> Elementwise` with the given target features.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        macro_rules! set {
            ($features:literal) => {
                fn elementwise() -> $crate::kernels::Elementwise {
                    use $crate::acts::ActLayout;
                    use $crate::kernels::{Norm, Router};
                    use llamay_plan::{Gating, Nonlinearity, RopePairs};
                    $(
                        #[target_feature(enable = $features)]
                        unsafe fn $name($($arg: $type),*) {
                            $crate::kernels::elementwise::$name($($arg),*);
                        }
                    )*
                    $crate::kernels::Elementwise { $($name),* }
                }
            };
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        pub(crate) use set;
    };
}

kernels! {
    /// Normalises each part of `x`.
    fn norm(norm: &Norm<'_>, x: &[f32], out: &mut [f32]);
    /// Rotates each head of `head_dim` by the row's cosines and sines.
    fn rope(x: &mut [f32], head_dim: usize, pairs: RopePairs, cos: &[f32], sin: &[f32]);
    /// Cosines and sines of `position * frequency`, times `magnitude`.
    fn angles(position: f32, frequencies: &[f32], magnitude: f32, cos: &mut [f32], sin: &mut [f32]);
    /// `out = f(gate, up)`.
    fn gate(gate: &[f32], up: &[f32], f: Gating, out: &mut [f32]);
    /// `x = f(x)`.
    fn activate(x: &mut [f32], f: Nonlinearity);
    /// `acc += y`.
    fn add(acc: &mut [f32], y: &[f32]);
    /// `acc += y * scale`, fused.
    fn add_scaled(acc: &mut [f32], y: &[f32], scale: f32);
    /// `x *= scale`.
    fn scale(x: &mut [f32], scale: f32);
    /// `x = cap * tanh(x / cap)`.
    fn softcap(x: &mut [f32], cap: f32);
    /// Chooses the `chosen.len()` best of `scores`; `scratch` is as long as they are.
    fn route(router: &Router<'_>, scores: &[f32], scratch: &mut [f32], chosen: &mut [f32], weights: &mut [f32]);
    /// `out = sum of weights[i] * x[i * out.len()..]`.
    fn combine(x: &[f32], weights: &[f32], out: &mut [f32]);
    /// Writes a row's record.
    fn record(x: &[f32], layout: &ActLayout, out: &mut [u32]);
}

/// The sum of `f` over a row, as the contract has it: element i to partial sum i mod 8, then the tree. `f` takes an element
/// and the partial sum before it. A macro, since a closure may not inherit the caller's features.
macro_rules! strided_sum {
    ($x:expr, |$v:ident, $p:ident| $f:expr) => {{
        let mut partial = [0.0f32; 8];
        let mut chunks = $x.chunks_exact(8);
        for chunk in &mut chunks {
            for ($p, $v) in partial.iter_mut().zip(chunk) {
                *$p = $f;
            }
        }
        for ($p, $v) in partial.iter_mut().zip(chunks.remainder()) {
            *$p = $f;
        }
        tree8(partial)
    }};
}

#[inline(always)]
pub(crate) fn norm(norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
    let n = norm.len;
    for (part, (x, out)) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate() {
        let mean = match norm.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => strided_sum!(x, |v, p| *p + *v) / n as f32,
        };
        // Taking off a mean of 0 changes no bit of a square or a product that is not zero.
        let squares = match norm.kind {
            NormKind::Rms => strided_sum!(x, |v, p| v.mul_add(*v, *p)),
            NormKind::Layer => strided_sum!(x, |v, p| (*v - mean).mul_add(*v - mean, *p)),
        };
        let r = math::rsqrt(squares / n as f32 + norm.eps);
        let (weight, bias) = (of_part(norm.weight, part, n), of_part(norm.bias, part, n));
        match (norm.kind, weight, bias) {
            (NormKind::Rms, Some(weight), None) => {
                for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
                    *o = v * r * w;
                }
            }
            (_, Some(weight), Some(bias)) => {
                for (((o, v), w), b) in out.iter_mut().zip(x).zip(weight).zip(bias) {
                    *o = ((v - mean) * r).mul_add(*w, *b);
                }
            }
            (_, Some(weight), None) => {
                for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
                    *o = (v - mean) * r * w;
                }
            }
            (_, None, Some(bias)) => {
                for ((o, v), b) in out.iter_mut().zip(x).zip(bias) {
                    *o = (v - mean) * r + b;
                }
            }
            (_, None, None) => {
                for (o, v) in out.iter_mut().zip(x) {
                    *o = (v - mean) * r;
                }
            }
        }
    }
}

/// The weights of a row's part, which the parts share or have one each; `None` where there are none.
#[inline(always)]
fn of_part(weights: &[f32], part: usize, len: usize) -> Option<&[f32]> {
    let parts = weights.len() / len;
    if parts == 0 { None } else { Some(&weights[part % parts * len..][..len]) }
}

#[inline(always)]
pub(crate) fn rope(x: &mut [f32], head_dim: usize, pairs: RopePairs, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in x.chunks_exact_mut(head_dim) {
        match pairs {
            RopePairs::Interleaved => {
                for ((pair, c), s) in head[..2 * half].chunks_exact_mut(2).zip(cos).zip(sin) {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = a.mul_add(*c, -(b * s));
                    pair[1] = a.mul_add(*s, b * c);
                }
            }
            RopePairs::Halves => {
                let (first, rest) = head.split_at_mut(half);
                for (((a, b), c), s) in first.iter_mut().zip(&mut rest[..half]).zip(cos).zip(sin) {
                    (*a, *b) = (a.mul_add(*c, -(*b * s)), a.mul_add(*s, *b * c));
                }
            }
        }
    }
}

#[inline(always)]
pub(crate) fn angles(position: f32, frequencies: &[f32], magnitude: f32, cos: &mut [f32], sin: &mut [f32]) {
    for ((f, c), s) in frequencies.iter().zip(cos).zip(sin) {
        let (sine, cosine) = math::sin_cos(position * f);
        *c = cosine * magnitude;
        *s = sine * magnitude;
    }
}

/// Runs `$body` with `$f` as the function of a non-linearity, so that each gets a loop of its own.
macro_rules! with_nonlinearity {
    ($kind:expr, |$f:ident| $body:expr) => {
        match $kind {
            Nonlinearity::Silu => with_nonlinearity!(@ math::silu, $f, $body),
            Nonlinearity::GeluTanh => with_nonlinearity!(@ math::gelu_tanh, $f, $body),
            Nonlinearity::Gelu => with_nonlinearity!(@ math::gelu_erf, $f, $body),
            Nonlinearity::Relu => with_nonlinearity!(@ math::relu, $f, $body),
            Nonlinearity::ReluSquared => with_nonlinearity!(@ math::relu_squared, $f, $body),
            Nonlinearity::Sigmoid => with_nonlinearity!(@ math::sigmoid, $f, $body),
        }
    };
    (@ $function:path, $f:ident, $body:expr) => {{
        use $function as $f;
        $body
    }};
}

#[inline(always)]
pub(crate) fn gate(gate: &[f32], up: &[f32], f: Gating, out: &mut [f32]) {
    match f {
        Gating::Product(f) => with_nonlinearity!(f, |f| {
            for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                *o = f(*g) * u;
            }
        }),
        Gating::ClippedSwiglu => {
            for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                *o = math::clipped_swiglu(*g, *u);
            }
        }
    }
}

#[inline(always)]
pub(crate) fn activate(x: &mut [f32], f: Nonlinearity) {
    with_nonlinearity!(f, |f| {
        for x in x {
            *x = f(*x);
        }
    });
}

#[inline(always)]
pub(crate) fn add(acc: &mut [f32], y: &[f32]) {
    for (a, y) in acc.iter_mut().zip(y) {
        *a += y;
    }
}

#[inline(always)]
pub(crate) fn add_scaled(acc: &mut [f32], y: &[f32], scale: f32) {
    for (a, y) in acc.iter_mut().zip(y) {
        *a = y.mul_add(scale, *a);
    }
}

#[inline(always)]
pub(crate) fn scale(x: &mut [f32], scale: f32) {
    for x in x {
        *x *= scale;
    }
}

#[inline(always)]
pub(crate) fn softcap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * math::tanh(*x / cap);
    }
}

#[inline(always)]
pub(crate) fn combine(x: &[f32], weights: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (x, w) in x.chunks_exact(out.len()).zip(weights) {
        for (o, x) in out.iter_mut().zip(x) {
            *o = w.mul_add(*x, *o);
        }
    }
}

/// Turns scores into the weights of a softmax.
#[inline(always)]
fn softmax(x: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    for v in x.iter() {
        max = if *v > max { *v } else { max };
    }
    for v in x.iter_mut() {
        *v = math::exp(*v - max);
    }
    let r = math::recip(strided_sum!(x, |v, p| *p + *v));
    scale(x, r);
}

#[inline(always)]
pub(crate) fn route(
    router: &Router<'_>,
    scores: &[f32],
    scratch: &mut [f32],
    chosen: &mut [f32],
    weights: &mut [f32],
) {
    let shares = scratch;
    shares.copy_from_slice(scores);
    match router.scoring {
        Scoring::Softmax => softmax(shares),
        Scoring::Sigmoid => activate(shares, Nonlinearity::Sigmoid),
        Scoring::SoftmaxOfChosen => {}
    }
    for i in 0..chosen.len() {
        let (mut best, mut best_rank) = (None, 0.0);
        for (e, share) in shares.iter().enumerate() {
            let rank = share + router.bias.get(e).copied().unwrap_or(0.0);
            // Of equal ranks the first wins; a rank that is no number wins over nothing but nothing.
            if (best.is_none() || rank > best_rank) && !chosen[..i].contains(&(e as f32)) {
                (best, best_rank) = (Some(e), rank);
            }
        }
        let best = best.unwrap_or(0);
        (chosen[i], weights[i]) = (best as f32, shares[best]);
    }
    if router.scoring == Scoring::SoftmaxOfChosen {
        softmax(weights);
    }
    if router.normalize {
        let r = math::recip(strided_sum!(weights, |v, p| *p + *v));
        scale(weights, r);
    }
    scale(weights, router.scale);
}

#[inline(always)]
pub(crate) fn record(x: &[f32], layout: &ActLayout, out: &mut [u32]) {
    match layout.kind {
        Activation::F32 => {
            for (o, x) in out.iter_mut().zip(x) {
                *o = x.to_bits();
            }
        }
        Activation::I8x32 => record_32(x, out),
        Activation::I8x256 => record_256(x, out),
    }
}

/// The scale of a block, and its quants as bytes of `to`.
#[inline(always)]
fn quantize<const N: usize>(x: &[f32; N], to: &mut [i8; N]) -> f32 {
    // By bits, so that a NaN is the largest magnitude and is not lost.
    let mut amax = [0u32; 16];
    for chunk in x.chunks_exact(16) {
        for (m, v) in amax.iter_mut().zip(chunk) {
            let v = v.to_bits() & 0x7fff_ffff;
            *m = if v > *m { v } else { *m };
        }
    }
    let amax = amax.iter().fold(0, |m, v| if *v > m { *v } else { m });
    let scale = block_scale(f32::from_bits(amax));
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (q, v) in to.iter_mut().zip(x) {
        *q = round_low_byte(v * inverse);
    }
    scale
}

/// [`round_even`] of a magnitude up to 127, as a byte: the low mantissa bits hold it in two's complement.
#[inline(always)]
fn round_low_byte(x: f32) -> i8 {
    const MAGIC: f32 = 12_582_912.0;
    debug_assert!(x.is_nan() || f32::from(((x + MAGIC).to_bits() & 0xff) as u8 as i8) == round_even(x));
    ((x + MAGIC).to_bits() & 0xff) as u8 as i8
}

#[inline(always)]
fn sum<const N: usize>(q: &[i8]) -> i32 {
    let mut sum = 0;
    for v in &q[..N] {
        sum += i32::from(*v);
    }
    sum
}

#[inline(always)]
fn record_32(x: &[f32], out: &mut [u32]) {
    let (blocks, _) = x.as_chunks::<32>();
    for (x, block) in blocks.iter().zip(out.chunks_exact_mut(block32::BYTES / 4)) {
        let (q, numbers) = block.split_at_mut(block32::SCALE / 4);
        let [q] = bytemuck::cast_slice_mut::<u32, [i8; 32]>(q) else { unreachable!("a block's quants") };
        let scale = quantize(x, q);
        let sum = sum::<32>(q);
        let [a, b, c] = [8, 16, 128].map(|n| (-n * sum) as u32);
        numbers.copy_from_slice(&[scale.to_bits(), (sum as f32).to_bits(), a, b, c]);
    }
}

#[inline(always)]
fn record_256(x: &[f32], out: &mut [u32]) {
    let (blocks, _) = x.as_chunks::<256>();
    for (x, block) in blocks.iter().zip(out.chunks_exact_mut(block256::BYTES / 4)) {
        let (q, numbers) = block.split_at_mut(block256::SCALE / 4);
        let [q] = bytemuck::cast_slice_mut::<u32, [i8; 256]>(q) else { unreachable!("a block's quants") };
        numbers[0] = quantize(x, q).to_bits();
        let (sums16, sums32) = bytemuck::cast_slice_mut::<u32, i16>(&mut numbers[1..]).split_at_mut(16);
        for (s, q) in sums16.iter_mut().zip(q.chunks_exact(16)) {
            *s = sum::<16>(q) as i16;
        }
        for (i, s) in sums32.iter_mut().enumerate() {
            *s = sums16[2 * i] + sums16[2 * i + 1];
        }
    }
}
