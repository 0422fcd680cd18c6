//! Scale search for the K formats: a super-block of 256 weights cut into sub-blocks, each with a small integer scale
//! (and minimum) under half-precision super-scales.
//!
//! Both fits go the same way:
//! 1. each sub-block alone: try a range of scales, round the weights to each, and take the least-squares scale for those
//!    quants (Lloyd's alternation); the best of them stands;
//! 2. round the scales to the super-scale's integers;
//! 3. alternate between the best integer scale of each sub-block and the least-squares super-scale, as long as the error
//!    falls.
//!
//! The error of each weight counts `importance * sqrt(mean square + square)`: large weights matter somewhat more.
//! Weights are first divided by the largest magnitude, so that no sum can overflow.

use half::f16;
use wide::f32x8;

use crate::encode::{min_max, signed_max};
use crate::{ROUND_MAGIC, round_even, tree8};

/// Weights of a super-block.
const LEN: usize = 256;
/// Rounds of step 3; the error hardly falls after the second.
const ROUNDS: usize = 2;
/// Share of the largest importance that every weight has at least.
const IMPORTANCE_FLOOR: f32 = 1e-4;

/// A block of a format without minima: `w = d * scale * (q - half_range)`.
pub(crate) struct Symmetric {
    pub(crate) d: f16,
    pub(crate) scales: [i8; 16],
    /// Offset added: `0..2 * half_range`.
    pub(crate) quants: [u8; LEN],
}

/// A block of a format with minima: `w = d * scale * q - dmin * min`.
pub(crate) struct Affine<const SUBS: usize> {
    pub(crate) d: f16,
    pub(crate) dmin: f16,
    pub(crate) scales: [u8; SUBS],
    pub(crate) mins: [u8; SUBS],
    pub(crate) quants: [u8; LEN],
}

/// Weights over their largest magnitude, and how much the error of each counts.
struct Scaled {
    amax: f32,
    x: [f32; LEN],
    weight: [f32; LEN],
}

impl Scaled {
    fn new(src: &[f32], importance: Option<&[f32]>) -> Scaled {
        let amax = signed_max(src).abs();
        let x: [f32; LEN] = std::array::from_fn(|i| if amax > 0.0 { src[i] / amax } else { 0.0 });
        let mean_square = x.iter().map(|x| x * x).sum::<f32>() / LEN as f32;
        let importance_of = |i: usize| match importance {
            Some(row) if row[i] > 0.0 && row[i].is_finite() => row[i],
            Some(_) => 0.0,
            None => 1.0,
        };
        let peak = (0..LEN).map(importance_of).fold(0.0, f32::max);
        let weight = std::array::from_fn(|i| {
            let importance = if peak > 0.0 { importance_of(i) / peak } else { 1.0 };
            (importance + IMPORTANCE_FLOOR) * (mean_square + x[i] * x[i]).sqrt()
        });
        Scaled { amax, x, weight }
    }

    /// The half-precision number that stands for `scale` in the block, and what it amounts to here.
    fn super_scale(&self, scale: f64) -> (f16, f32) {
        let d = f16::from_f32((scale * f64::from(self.amax)) as f32);
        (d, if self.amax > 0.0 { d.to_f32() / self.amax } else { 0.0 })
    }

    /// The sub-blocks of `len`, each with the weights of its errors.
    fn subs(&self, len: usize) -> impl Iterator<Item = (&[f32], &[f32])> {
        self.x.chunks_exact(len).zip(self.weight.chunks_exact(len))
    }
}

/// Sums `N` terms of each (x, weight), eight at a time in a fixed order.
#[inline(always)]
fn sums<const N: usize>(x: &[f32], weight: &[f32], terms: impl Fn(f32x8, f32x8) -> [f32x8; N]) -> [f32; N] {
    let mut acc = [f32x8::ZERO; N];
    for (x, weight) in x.as_chunks::<8>().0.iter().zip(weight.as_chunks::<8>().0) {
        let terms = terms(f32x8::new(*x), f32x8::new(*weight));
        for (acc, term) in acc.iter_mut().zip(terms) {
            *acc += term;
        }
    }
    acc.map(|acc| tree8(acc.to_array()))
}

/// As [`quant`], eight at a time, for finite numbers.
#[inline(always)]
fn quants(x: f32x8, inverse: f32, lo: f32, hi: f32) -> f32x8 {
    let rounded = (x * inverse + ROUND_MAGIC) - ROUND_MAGIC;
    rounded.fast_max(f32x8::splat(lo)).fast_min(f32x8::splat(hi))
}

/// `x` in steps of `1 / inverse`, rounded and kept in range.
#[inline(always)]
fn quant(x: f32, inverse: f32, lo: f32, hi: f32) -> f32 {
    round_even(x * inverse).max(lo).min(hi)
}

/// The reciprocal, or 0 where it would not be finite.
#[inline(always)]
fn inverse_of(scale: f32) -> f32 {
    if scale.abs() < f32::MIN_POSITIVE { 0.0 } else { 1.0 / scale }
}

/// Weighted squared error of a sub-block whose weights become `scale * q - min`, with the best quants.
#[inline(always)]
fn error(x: &[f32], weight: &[f32], scale: f32, min: f32, lo: f32, hi: f32) -> f32 {
    let inverse = inverse_of(scale);
    let [error] = sums(x, weight, |x, weight| {
        let off = quants(x + min, inverse, lo, hi) * scale - (x + min);
        [weight * off * off]
    });
    error
}

/// Fits a block without minima: quants in `-half_range..half_range`, scales in `-scale_half_range..scale_half_range`.
pub(crate) fn fit_symmetric(
    src: &[f32],
    importance: Option<&[f32]>,
    half_range: u8,
    scale_half_range: u8,
) -> Symmetric {
    const SUB: usize = LEN / 16;
    let scaled = Scaled::new(src, importance);
    let (lo, hi) = (-f32::from(half_range), f32::from(half_range) - 1.0);
    let (scale_lo, scale_hi) = (-f32::from(scale_half_range), f32::from(scale_half_range) - 1.0);

    let mut ideal = [0.0f32; 16];
    for (ideal, (x, weight)) in ideal.iter_mut().zip(scaled.subs(SUB)) {
        *ideal = symmetric_scale(x, weight, lo, hi);
    }
    // The largest scale becomes the lowest integer, whichever its sign, since that side has one step more.
    let mut super_scale = scaled.super_scale(f64::from(signed_max(&ideal) / scale_lo));
    let mut scales = ideal.map(|s| quant(s, inverse_of(super_scale.1), scale_lo, scale_hi));

    let errors = |d: f32, scales: &[f32; 16]| -> f32 {
        scaled.subs(SUB).zip(scales).map(|((x, w), s)| error(x, w, d * s, 0.0, lo, hi)).sum()
    };
    let mut best = errors(super_scale.1, &scales);
    for _ in 0..ROUNDS {
        let (_, d) = super_scale;
        let mut next = scales;
        for (scale, (x, weight)) in next.iter_mut().zip(scaled.subs(SUB)) {
            let around = [*scale, *scale - 1.0, *scale + 1.0].map(|s| s.max(scale_lo).min(scale_hi));
            *scale = least(around, |s| error(x, weight, d * s, 0.0, lo, hi));
        }
        let (mut ax, mut aa) = (0.0f64, 0.0f64);
        for ((x, weight), scale) in scaled.subs(SUB).zip(next) {
            let inverse = inverse_of(d * scale);
            for (&x, &weight) in x.iter().zip(weight) {
                let (a, weight) = (f64::from(scale * quant(x, inverse, lo, hi)), f64::from(weight));
                ax += weight * a * f64::from(x);
                aa += weight * a * a;
            }
        }
        let refined = scaled.super_scale(if aa > 0.0 { ax / aa } else { 0.0 });
        for candidate in [super_scale, refined] {
            let error = errors(candidate.1, &next);
            if error < best {
                (best, super_scale, scales) = (error, candidate, next);
            }
        }
    }

    let (d, d_scaled) = super_scale;
    let quants = std::array::from_fn(|i| {
        let inverse = inverse_of(d_scaled * scales[i / SUB]);
        (quant(scaled.x[i], inverse, lo, hi) - lo) as u8
    });
    Symmetric { d, scales: scales.map(|s| s as i8), quants }
}

/// The best real scale of one sub-block without a minimum.
fn symmetric_scale(x: &[f32], weight: &[f32], lo: f32, hi: f32) -> f32 {
    let peak = signed_max(x);
    if peak == 0.0 {
        return 0.0;
    }
    // For given quants the error falls by (Σwqx)² / Σwq²; `best` is the largest fall and its scale.
    let mut best = (0.0f32, 0.0f32);
    let mut consider = |inverse: f32| {
        let [qx, qq] = sums(x, weight, |x, weight| {
            let q = quants(x, inverse, lo, hi);
            [weight * q * x, weight * q * q]
        });
        if qq > 0.0 && qx * qx > best.0 * qq {
            best = (qx * qx / qq, qx / qq);
        }
        best.1
    };
    // The peak lands near one end of the range or the other, a step within it or somewhat outside.
    for fifth in -4..=4 {
        let shift = fifth as f32 * 0.2;
        consider((lo + shift) / peak);
        consider((hi + shift) / peak);
    }
    let scale = consider(0.0);
    consider(inverse_of(scale))
}

/// Fits a block with minima: quants in `0..=max_q`, scales and minima in `0..=max_scale`.
pub(crate) fn fit_affine<const SUBS: usize>(
    src: &[f32],
    importance: Option<&[f32]>,
    max_q: u8,
    max_scale: u8,
) -> Affine<SUBS> {
    let sub_len = LEN / SUBS;
    let scaled = Scaled::new(src, importance);
    let (hi, top) = (f32::from(max_q), f32::from(max_scale));

    let (mut ideal_scales, mut ideal_mins) = ([0.0f32; SUBS], [0.0f32; SUBS]);
    for (sub, (x, weight)) in scaled.subs(sub_len).enumerate() {
        (ideal_scales[sub], ideal_mins[sub]) = affine_scale(x, weight, hi);
    }
    let largest = |values: &[f32; SUBS]| f64::from(values.iter().copied().fold(0.0, f32::max) / top);
    let mut d = scaled.super_scale(largest(&ideal_scales));
    let mut dmin = scaled.super_scale(largest(&ideal_mins));
    let mut scales = ideal_scales.map(|s| quant(s, inverse_of(d.1), 0.0, top));
    let mut mins = ideal_mins.map(|m| quant(m, inverse_of(dmin.1), 0.0, top));

    let errors = |d: f32, dmin: f32, scales: &[f32; SUBS], mins: &[f32; SUBS]| -> f32 {
        let subs = scaled.subs(sub_len).zip(scales.iter().zip(mins));
        subs.map(|((x, w), (s, m))| error(x, w, d * s, dmin * m, 0.0, hi)).sum()
    };
    let mut best = errors(d.1, dmin.1, &scales, &mins);
    for _ in 0..ROUNDS {
        let (mut next_scales, mut next_mins) = (scales, mins);
        for (sub, (x, weight)) in scaled.subs(sub_len).enumerate() {
            let around: [(f32, f32); 9] = std::array::from_fn(|i| {
                // The first is no change, so that it wins a tie.
                let (ds, dm) = ([0.0, -1.0, 1.0][i / 3], [0.0, -1.0, 1.0][i % 3]);
                ((scales[sub] + ds).max(0.0).min(top), (mins[sub] + dm).max(0.0).min(top))
            });
            (next_scales[sub], next_mins[sub]) =
                least(around, |(s, m)| error(x, weight, d.1 * s, dmin.1 * m, 0.0, hi));
        }
        let refined = super_scales(&scaled, sub_len, (d.1, dmin.1), &next_scales, &next_mins, hi);
        for (candidate, candidate_min) in [Some((d, dmin)), refined].into_iter().flatten() {
            let error = errors(candidate.1, candidate_min.1, &next_scales, &next_mins);
            if error < best {
                (best, d, dmin, scales, mins) = (error, candidate, candidate_min, next_scales, next_mins);
            }
        }
    }

    let quants = std::array::from_fn(|i| {
        let sub = i / sub_len;
        quant(scaled.x[i] + dmin.1 * mins[sub], inverse_of(d.1 * scales[sub]), 0.0, hi) as u8
    });
    Affine { d: d.0, dmin: dmin.0, scales: scales.map(|s| s as u8), mins: mins.map(|m| m as u8), quants }
}

/// The best real scale and minimum (neither negative) of one sub-block.
fn affine_scale(x: &[f32], weight: &[f32], hi: f32) -> (f32, f32) {
    let (x_min, x_max) = min_max(x);
    let min = (-x_min).max(0.0);
    let range = x_max + min;
    if range <= 0.0 {
        return (0.0, min);
    }
    let [w, wx, wxx] = sums(x, weight, |x, w| [w, w * x, w * x * x]).map(f64::from);
    let mut best = (f64::INFINITY, 0.0f32, min);
    let mut consider = |inverse: f32, min: f32| {
        let [q, qq, qx] = sums(x, weight, |x, weight| {
            let q = quants(x + min, inverse, 0.0, hi);
            [weight * q, weight * q * q, weight * q * x]
        })
        .map(f64::from);
        // Least squares for x ≈ s·q - m.
        let det = w * qq - q * q;
        let (mut s, mut m) = ((w * qx - q * wx) / det, (q * qx - qq * wx) / det);
        if !(det > 0.0 && m >= 0.0) {
            (s, m) = (if qq > 0.0 { qx / qq } else { 0.0 }, 0.0);
        }
        let error = s * s * qq + m * m * w + wxx - 2.0 * (s * m * q + s * qx - m * wx);
        if s >= 0.0 && error < best.0 {
            best = (error, s as f32, m as f32);
        }
        (best.1, best.2)
    };
    for tenth in -10..=10 {
        consider((hi + tenth as f32 * 0.1) / range, min);
    }
    let mut fit = consider(hi / range, min);
    for _ in 0..2 {
        fit = consider(inverse_of(fit.0), fit.1);
    }
    fit
}

/// The least-squares super-scale and super-minimum for given integer scales; `None` where they are not determined.
fn super_scales(
    scaled: &Scaled,
    sub_len: usize,
    (d, dmin): (f32, f32),
    scales: &[f32],
    mins: &[f32],
    hi: f32,
) -> Option<((f16, f32), (f16, f32))> {
    // x ≈ d·a - dmin·b with a = scale·q, b = min.
    let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0f64, 0.0f64, 0.0f64, 0.0f64, 0.0f64);
    for ((x, weight), (&scale, &min)) in scaled.subs(sub_len).zip(scales.iter().zip(mins)) {
        let inverse = inverse_of(d * scale);
        let b = f64::from(min);
        for (&x, &weight) in x.iter().zip(weight) {
            let a = f64::from(scale * quant(x + dmin * min, inverse, 0.0, hi));
            let (x, weight) = (f64::from(x), f64::from(weight));
            aa += weight * a * a;
            ab += weight * a * b;
            bb += weight * b * b;
            ax += weight * a * x;
            bx += weight * b * x;
        }
    }
    let det = aa * bb - ab * ab;
    let (d, dmin) = if det > 1e-9 * aa * bb {
        ((ax * bb - ab * bx) / det, (ab * ax - aa * bx) / det)
    } else if aa > 0.0 {
        (ax / aa, 0.0)
    } else {
        return None;
    };
    (d >= 0.0 && dmin >= 0.0).then(|| (scaled.super_scale(d), scaled.super_scale(dmin)))
}

/// The candidate of least error; the first of several.
fn least<T: Copy, const N: usize>(candidates: [T; N], error: impl Fn(T) -> f32) -> T {
    let mut best = (error(candidates[0]), candidates[0]);
    for &candidate in &candidates[1..] {
        let error = error(candidate);
        if error < best.0 {
            best = (error, candidate);
        }
    }
    best.1
}
