//! The encoders of the non-linear and floating 4-bit formats.

use llamay_formats::Format;

/// Weights of a bell curve: sums of twelve uniform numbers, less six.
fn bell(n: usize, scale: f32) -> Vec<f32> {
    let mut state = 1u32;
    let mut uniform = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * scale).collect()
}

fn round_trip(format: Format, weights: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut bytes = vec![0xaa; format.row_bytes(weights.len()).unwrap()];
    format.encode(weights, importance, &mut bytes).unwrap();
    let mut decoded = vec![0.0; weights.len()];
    format.decode(&bytes, &mut decoded);
    decoded
}

/// Root of the mean squared error, over that of the weights.
fn error(weights: &[f32], decoded: &[f32]) -> f32 {
    let square = |it: &mut dyn Iterator<Item = f32>| it.map(|x| x * x).sum::<f32>();
    (square(&mut weights.iter().zip(decoded).map(|(a, b)| a - b)) / square(&mut weights.iter().copied()))
        .sqrt()
}

const ENCODED: [Format; 3] = [Format::IQ4_NL, Format::IQ4_XS, Format::MXFP4];

#[test]
fn the_error_on_a_bell_curve_is_that_of_four_bits() {
    let weights = bell(256 * 64, 0.02);
    let q4_0 = error(&weights, &round_trip(Format::Q4_0, &weights, None));
    for format in [Format::IQ4_NL, Format::IQ4_XS] {
        let error = error(&weights, &round_trip(format, &weights, None));
        assert!(error < 0.076 && error < q4_0, "{format}: {error}, Q4_0 {q4_0}");
    }
    assert!(error(&weights, &round_trip(Format::MXFP4, &weights, None)) < 0.12);
}

#[test]
fn weights_that_the_format_holds_come_back() {
    for format in ENCODED {
        for scale in [1e-3, 1.0, 100.0] {
            let once = round_trip(format, &bell(256 * 8, scale), None);
            let twice = round_trip(format, &once, None);
            assert!(error(&once, &twice) < 0.01, "{format}: {}", error(&once, &twice));
        }
    }
}

#[test]
fn extreme_weights_stay_finite_and_zeros_stay_zero() {
    for format in ENCODED {
        for scale in [0.0, 1e-38, 1e-20, 1e-6, 1e4] {
            let decoded = round_trip(format, &bell(256, scale), None);
            assert!(decoded.iter().all(|w| w.abs() <= 7.0 * scale), "{format} at {scale:e}: {decoded:?}");
        }
        let mut one = vec![0.0; 256];
        one[77] = -1.0;
        let decoded = round_trip(format, &one, None);
        assert!((decoded[77] + 1.0).abs() < 1e-3, "{format}: {}", decoded[77]);
    }
}

#[test]
fn important_columns_come_out_closer() {
    let weights = bell(256 * 64, 0.02);
    let importance: Vec<f32> = (0..weights.len()).map(|i| if i % 4 == 0 { 100.0 } else { 1.0 }).collect();
    let important = |all: &[f32]| all.iter().copied().step_by(4).collect::<Vec<_>>();
    for format in [Format::IQ4_NL, Format::IQ4_XS] {
        let plain = error(&important(&weights), &important(&round_trip(format, &weights, None)));
        let weighed =
            error(&important(&weights), &important(&round_trip(format, &weights, Some(&importance))));
        assert!(weighed < 0.95 * plain, "{format}: {weighed} against {plain}");
        let zeros = vec![0.0; weights.len()];
        assert_eq!(
            round_trip(format, &weights, Some(&zeros)),
            round_trip(format, &weights, None),
            "{format}"
        );
    }
}
