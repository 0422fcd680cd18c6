//! Steps over single rows. The source is the same for every instruction set; the compiler vectorises it, and since it
//! never reorders or fuses float operations by itself, the bits are the same too.

use llamay_formats::{Activation, block_scale, round_even, tree8};
use llamay_plan::{Nonlinearity, RopePairs};

use crate::acts::ActLayout;
use crate::math;

/// The row kernels of one instruction set.
///
/// Each may be called only where the CPU has the set's features.
#[derive(Clone, Copy)]
pub(crate) struct Elementwise {
    /// `out = x / sqrt(mean(x^2) + eps) * weight`, for each part of `weight.len()` elements.
    pub(crate) rms_norm: unsafe fn(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]),
    /// Rotates each head of `head_dim` by the row's cosines and sines.
    pub(crate) rope: unsafe fn(x: &mut [f32], head_dim: usize, pairs: RopePairs, cos: &[f32], sin: &[f32]),
    /// Cosines and sines of `position * frequency`, times `magnitude`.
    pub(crate) angles:
        unsafe fn(position: f32, frequencies: &[f32], magnitude: f32, cos: &mut [f32], sin: &mut [f32]),
    /// `out = f(gate) * up`.
    pub(crate) gate: unsafe fn(gate: &[f32], up: &[f32], f: Nonlinearity, out: &mut [f32]),
    /// `acc += y`.
    pub(crate) add: unsafe fn(acc: &mut [f32], y: &[f32]),
    /// Writes a row's record.
    pub(crate) record: unsafe fn(x: &[f32], layout: &ActLayout, out: &mut [u32]),
    /// Merges an attention tile (values, maximum, sum) into the state that holds the tiles before it.
    pub(crate) merge: unsafe fn(state: &mut [f32], tile: &[f32]),
}

/// Defines `fn elementwise() -> Elementwise` with the given target features.
macro_rules! set {
    ($features:literal) => {
        fn elementwise() -> $crate::kernels::Elementwise {
            use $crate::kernels::elementwise as body;
            #[target_feature(enable = $features)]
            unsafe fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
                body::rms_norm(x, weight, eps, out);
            }
            #[target_feature(enable = $features)]
            unsafe fn rope(
                x: &mut [f32],
                head_dim: usize,
                pairs: llamay_plan::RopePairs,
                cos: &[f32],
                sin: &[f32],
            ) {
                body::rope(x, head_dim, pairs, cos, sin);
            }
            #[target_feature(enable = $features)]
            unsafe fn angles(
                position: f32,
                frequencies: &[f32],
                magnitude: f32,
                cos: &mut [f32],
                sin: &mut [f32],
            ) {
                body::angles(position, frequencies, magnitude, cos, sin);
            }
            #[target_feature(enable = $features)]
            unsafe fn gate(gate: &[f32], up: &[f32], f: llamay_plan::Nonlinearity, out: &mut [f32]) {
                body::gate(gate, up, f, out);
            }
            #[target_feature(enable = $features)]
            unsafe fn add(acc: &mut [f32], y: &[f32]) {
                body::add(acc, y);
            }
            #[target_feature(enable = $features)]
            unsafe fn record(x: &[f32], layout: &$crate::acts::ActLayout, out: &mut [u32]) {
                body::record(x, layout, out);
            }
            #[target_feature(enable = $features)]
            unsafe fn merge(state: &mut [f32], tile: &[f32]) {
                body::merge(state, tile);
            }
            $crate::kernels::Elementwise { rms_norm, rope, angles, gate, add, record, merge }
        }
    };
}
pub(crate) use set;

/// The same without any features.
pub(crate) fn portable() -> Elementwise {
    Elementwise { rms_norm, rope, angles, gate, add, record, merge }
}

#[inline(always)]
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let n = weight.len();
    for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        let mut partial = [0.0f32; 8];
        let mut chunks = x.chunks_exact(8);
        for chunk in &mut chunks {
            for (p, v) in partial.iter_mut().zip(chunk) {
                *p = v.mul_add(*v, *p);
            }
        }
        for (p, v) in partial.iter_mut().zip(chunks.remainder()) {
            *p = v.mul_add(*v, *p);
        }
        let r = math::rsqrt(tree8(partial) / n as f32 + eps);
        for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
            *o = v * r * w;
        }
    }
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

#[inline(always)]
pub(crate) fn gate(gate: &[f32], up: &[f32], f: Nonlinearity, out: &mut [f32]) {
    match f {
        Nonlinearity::Silu => {
            for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                *o = math::silu(*g) * u;
            }
        }
        Nonlinearity::GeluTanh => {
            for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                *o = math::gelu_tanh(*g) * u;
            }
        }
    }
}

#[inline(always)]
pub(crate) fn add(acc: &mut [f32], y: &[f32]) {
    for (a, y) in acc.iter_mut().zip(y) {
        *a += y;
    }
}

/// Merges `tile` into `state`; both are values, then the maximum and the sum (docs/arithmetic.md, "Attention").
#[inline(always)]
pub(crate) fn merge(state: &mut [f32], tile: &[f32]) {
    let n = state.len() - 2;
    let (m0, m1) = (state[n], tile[n]);
    let m = if m1 > m0 { m1 } else { m0 };
    let (a, b) = (math::exp(m0 - m), math::exp(m1 - m));
    for (o, t) in state[..n].iter_mut().zip(&tile[..n]) {
        *o = t.mul_add(b, *o * a);
    }
    state[n] = m;
    state[n + 1] = tile[n + 1].mul_add(b, state[n + 1] * a);
}

#[inline(always)]
pub(crate) fn record(x: &[f32], layout: &ActLayout, out: &mut [u32]) {
    match layout.kind {
        Activation::F32 => {
            for (o, x) in out.iter_mut().zip(x) {
                *o = x.to_bits();
            }
        }
        Activation::I8x32 => record_32(x, layout, out),
        Activation::I8x256 => record_256(x, layout, out),
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

fn record_parts<'a>(layout: &ActLayout, out: &'a mut [u32]) -> (&'a mut [i8], &'a mut [u32]) {
    let (quants, rest) = out.split_at_mut(layout.k / 4);
    (bytemuck::cast_slice_mut(quants), rest)
}

#[inline(always)]
fn record_32(x: &[f32], layout: &ActLayout, out: &mut [u32]) {
    let n = layout.n_blocks;
    let (quants, rest) = record_parts(layout, out);
    let (blocks, _) = x.as_chunks::<32>();
    let (q, _) = quants.as_chunks_mut::<32>();
    for (b, (x, q)) in blocks.iter().zip(q).enumerate() {
        rest[b] = quantize(x, q).to_bits();
        let sum = sum::<32>(q);
        rest[n + b] = (sum as f32).to_bits();
        rest[2 * n + b] = (-8 * sum) as u32;
        rest[3 * n + b] = (-16 * sum) as u32;
        rest[4 * n + b] = (-128 * sum) as u32;
    }
}

#[inline(always)]
fn record_256(x: &[f32], layout: &ActLayout, out: &mut [u32]) {
    let n = layout.n_blocks;
    let (quants, rest) = record_parts(layout, out);
    let (scales, rest) = rest.split_at_mut(n);
    let sums: &mut [i16] = bytemuck::cast_slice_mut(rest);
    let (sums16, sums32) = sums.split_at_mut(layout.k / 16);
    let (blocks, _) = x.as_chunks::<256>();
    let (q, _) = quants.as_chunks_mut::<256>();
    for (b, (x, q)) in blocks.iter().zip(q).enumerate() {
        scales[b] = quantize(x, q).to_bits();
        for (s, q) in sums16[16 * b..].iter_mut().zip(q.chunks_exact(16)) {
            *s = sum::<16>(q) as i16;
        }
        for i in 0..8 {
            sums32[8 * b + i] = sums16[16 * b + 2 * i] + sums16[16 * b + 2 * i + 1];
        }
    }
}
