//! Encoders of the legacy and K formats, and what every encoder owes its caller.

mod support;

use llamay_formats::{EncodeError, Format};
use proptest::prelude::*;
use support::{Random, encode, error, round_trip};

const ONE: &[f32] = &[1.0];

/// Formats with a given number of steps between the ends of each block's range.
const LEGACY: [(Format, f32); 5] = [
    (Format::Q4_0, 15.0),
    (Format::Q4_1, 15.0),
    (Format::Q5_0, 31.0),
    (Format::Q5_1, 31.0),
    (Format::Q8_0, 254.0),
];

/// The K formats: weights a sub-block, steps, whether there is a minimum, and the error on a bell curve, relative to the
/// weights, that llama.cpp's encoder leaves (measured on such weights).
const K: [(Format, usize, f32, bool, f64); 5] = [
    (Format::Q2_K, 16, 3.0, true, 0.297),
    (Format::Q3_K, 16, 7.0, false, 0.151),
    (Format::Q4_K, 32, 15.0, true, 0.0714),
    (Format::Q5_K, 32, 31.0, true, 0.0361),
    (Format::Q6_K, 16, 63.0, false, 0.0178),
];

fn encodable() -> impl Iterator<Item = Format> {
    Format::ALL.iter().copied().filter(|f| f.can_encode())
}

/// Rounding to equal steps over the range of each `len` weights, with scales of full precision.
fn plain_rounding(weights: &[f32], len: usize, steps: f32, minimum: bool) -> Vec<f32> {
    let mut out = Vec::new();
    for block in weights.chunks(len) {
        let (lo, hi) = block.iter().fold((0.0f32, 0.0f32), |(lo, hi), &w| (lo.min(w), hi.max(w)));
        let (lo, hi) = if minimum { (lo, hi) } else { (-hi.max(-lo), hi.max(-lo)) };
        let step = (hi - lo) / steps;
        out.extend(block.iter().map(|w| ((w - lo) / step).round() * step + lo));
    }
    out
}

/// Bell curve, long tails, all within bounds, sub-blocks of different size, far from zero.
fn samples() -> [(&'static str, Vec<f32>); 5] {
    const N: usize = 256 * 64;
    let mut random = Random(7);
    let bell = random.normals(N, 0.02);
    let tails = (0..N).map(|_| random.normal() * random.normal() * 0.02).collect();
    let bounded = (0..N).map(|_| random.uniform()).collect();
    let mut uneven = random.normals(N, 0.01);
    for sub in uneven.chunks_mut(16) {
        let size = 2f32.powf(random.uniform() * 3.0);
        sub.iter_mut().for_each(|w| *w *= size);
    }
    let far = random.normals(N, 0.1).iter().map(|w| w + 1.0).collect();
    [("bell", bell), ("tails", tails), ("bounded", bounded), ("uneven", uneven), ("far", far)]
}

#[test]
fn k_formats_do_better_than_plain_rounding_and_llama_cpp() {
    for (format, len, steps, minimum, llama_cpp) in K {
        for (name, weights) in samples() {
            let ours = error(&weights, &round_trip(format, &weights, None), ONE);
            let plain = error(&weights, &plain_rounding(&weights, len, steps, minimum), ONE);
            assert!(ours < 0.94 * plain, "{format}, {name}: {ours}, plain {plain}");
            assert!(name != "bell" || ours < llama_cpp, "{format}: {ours}, llama.cpp {llama_cpp}");
        }
    }
}

#[test]
fn importance_moves_the_error_to_columns_that_matter_less() {
    for (format, ..) in K {
        let weights = Random(3).normals(256 * 64, 0.02);
        let importance: Vec<f32> = (0..512).map(|i| if i % 3 == 0 { 100.0 } else { 1.0 }).collect();
        let with = round_trip(format, &weights, Some(&importance));
        let without = round_trip(format, &weights, None);
        let (with, without) = (error(&weights, &with, &importance), error(&weights, &without, &importance));
        assert!(with < 0.87 * without, "{format}: {with} with, {without} without importance");
    }
}

#[test]
fn importance_that_is_all_equal_or_useless_changes_nothing() {
    for (format, ..) in K {
        let weights = Random(4).normals(512, 0.02);
        let expected = encode(format, &weights, None);
        for importance in [0.0, 1.0, f32::MAX, f32::NAN, f32::INFINITY, -1.0] {
            let bytes = encode(format, &weights, Some(&[importance; 256]));
            assert_eq!(bytes, expected, "{format}, {importance}");
        }
    }
}

#[test]
fn legacy_formats_stay_within_half_a_step() {
    for (format, steps) in LEGACY {
        let weights = Random(5).normals(32 * 500, 1.0);
        let decoded = round_trip(format, &weights, None);
        for (block, decoded) in weights.chunks(32).zip(decoded.chunks(32)) {
            let (lo, hi) = block.iter().fold((0.0f32, 0.0f32), |(lo, hi), &w| (lo.min(w), hi.max(w)));
            let amax = hi.max(-lo);
            // The formats without a minimum cut the far end by up to half a step more.
            let bound = match format {
                Format::Q4_0 | Format::Q5_0 => amax * 2.0 / (steps + 1.0),
                Format::Q8_0 => amax / steps,
                _ => (hi - lo) / steps * 0.5,
            } + amax * 2e-3;
            for (w, d) in block.iter().zip(decoded) {
                assert!((w - d).abs() <= bound, "{format}: {w} became {d}, bound {bound}");
            }
        }
    }
}

#[test]
fn weights_that_a_legacy_format_holds_come_back() {
    for (format, steps) in LEGACY {
        let (lo, minimum) = match format {
            Format::Q4_1 | Format::Q5_1 => (0.0, -0.375),
            Format::Q8_0 => (-127.0, 0.0),
            _ => (-(steps + 1.0) / 2.0, 0.0),
        };
        // Both ends of the range are present, so that the scale is found again.
        let weights: Vec<f32> = (0..32)
            .map(|i| lo + if i == 31 { steps } else { (i as f32 * 7.0) % steps })
            .map(|q| q * 0.0625 + minimum)
            .collect();
        assert_eq!(round_trip(format, &weights, None), weights, "{format}");
    }
}

#[test]
fn weights_that_a_k_format_holds_come_back_almost() {
    for (format, _, steps, minimum, _) in K {
        let mut random = Random(6);
        // One scale and minimum for all, so that integer scales are no obstacle.
        let low = if minimum { 0.0 } else { -(steps + 1.0) / 2.0 };
        let weights: Vec<f32> = (0..256 * 16)
            .map(|i| match i % 16 {
                0 => low,
                1 => low + steps,
                _ => low + (random.bits() % (steps as u64 + 1)) as f32,
            })
            .map(|q| q * 0.03125 - if minimum { 0.25 } else { 0.0 })
            .collect();
        let error = error(&weights, &round_trip(format, &weights, None), ONE);
        assert!(error < 3e-4, "{format}: {error}");
    }
}

#[test]
fn zeros_stay_zero() {
    for format in encodable() {
        for zero in [0.0, -0.0] {
            let decoded = round_trip(format, &[zero; 512], None);
            assert!(decoded.iter().all(|&w| w == 0.0), "{format}");
        }
    }
}

#[test]
fn one_row_at_a_time_or_all_at_once_is_the_same() {
    let weights = Random(8).normals(4 * 512, 1.0);
    let importance: Vec<f32> = Random(9).normals(512, 1.0).iter().map(|v| v * v).collect();
    for format in encodable() {
        let whole = encode(format, &weights, Some(&importance));
        let rows: Vec<u8> =
            weights.chunks(512).flat_map(|row| encode(format, row, Some(&importance))).collect();
        assert_eq!(whole, rows, "{format}");
    }
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    for format in encodable() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weights = vec![0.5; 768];
            weights[300] = bad;
            weights[400] = bad;
            let mut out = vec![0; format.row_bytes(768).unwrap()];
            match format.encode(&weights, None, &mut out) {
                Err(EncodeError::NotFinite { index: 300, value }) => {
                    assert_eq!(value.to_bits(), bad.to_bits())
                }
                other => panic!("{format}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_weight_beyond_the_range_is_named_and_never_becomes_infinite() {
    for format in encodable() {
        for size in [4e4, 7e4, 1e6, 1e9, 1e30, f32::MAX] {
            let mut weights = vec![0.5; 768];
            weights[700] = -size;
            let mut out = vec![0; format.row_bytes(768).unwrap()];
            match format.encode(&weights, None, &mut out) {
                Ok(()) => {
                    assert!(support::decode(format, &out).iter().all(|w| w.is_finite()), "{format}, {size:e}")
                }
                Err(EncodeError::TooLarge { index, value, format: named }) => {
                    assert_eq!((index, value, named), (700, -size, format));
                }
                Err(other) => panic!("{format}: {other}"),
            }
        }
    }
    assert!(matches!(Format::F16.encode(&[65520.0], None, &mut [0; 2]), Err(EncodeError::TooLarge { .. })));
    assert_eq!(round_trip(Format::F16, &[65519.0], None), [65504.0]);
}

#[test]
fn a_format_without_an_encoder_says_so() {
    let mut names = Vec::new();
    for &format in Format::ALL.iter().filter(|f| !f.can_encode()) {
        let mut out = vec![0; format.row_bytes(256).unwrap()];
        assert_eq!(format.encode(&[0.0; 256], None, &mut out), Err(EncodeError::Unsupported(format)));
        names.push(format);
    }
    assert!(names.contains(&Format::I32) && names.contains(&Format::IQ2_XXS), "{names:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any finite weights whatever: tiny, huge, mixed, constant.
    #[test]
    fn no_row_panics_and_no_weight_decodes_far_outside_the_range(
        weights in proptest::collection::vec(
            prop_oneof![
                4 => -1.0f32..1.0,
                1 => Just(0.0f32),
                1 => (-1.0f32..1.0, -149i32..15).prop_map(|(x, e)| x * 2f32.powi(e)),
            ],
            256,
        ),
        exponent in -40i32..16,
    ) {
        let weights: Vec<f32> = weights.iter().map(|w| w * 2f32.powi(exponent)).collect();
        let amax = weights.iter().fold(0.0f32, |m, w| m.max(w.abs()));
        for (format, ..) in K {
            let mut out = vec![0; format.row_bytes(256).unwrap()];
            if format.encode(&weights, None, &mut out).is_ok() {
                for w in support::decode(format, &out) {
                    prop_assert!(w.abs() <= 2.0 * amax + 1e-5, "{} gave {} of at most {}", format, w, amax);
                }
            }
        }
    }
}
