//! The types without blocks.

mod support;

use llamay_formats::{Format, plain};
use support::{Random, decode, encode, round_trip};

/// Half precision by its definition.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[test]
fn every_half_precision_pattern_decodes() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (bits, value) in (0..=u16::MAX).zip(decode(Format::F16, &bytes)) {
        let expected = half(bits) as f32;
        if expected.is_nan() {
            assert!(value.is_nan(), "{bits:04x}");
        } else {
            assert_eq!(value.to_bits(), expected.to_bits(), "{bits:04x}");
        }
    }
}

#[test]
fn finite_halves_and_bfloats_come_back() {
    for format in [Format::F16, Format::BF16] {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let weights = decode(format, &bytes);
        for (bits, weight) in (0..=u16::MAX).zip(weights).filter(|(_, w)| w.is_finite()) {
            assert_eq!(encode(format, &[weight], None), bits.to_le_bytes(), "{format} {bits:04x}");
        }
    }
}

#[test]
fn encoding_takes_the_nearest_of_two_neighbours_and_the_even_one_of_a_tie() {
    // Positive finite patterns, whose order is that of their values.
    for (format, top) in [(Format::F16, 0x7bff), (Format::BF16, 0x7f7f)] {
        let value = |bits: u16| f64::from(decode(format, &bits.to_le_bytes())[0]);
        for bits in (0..top).step_by(7) {
            let middle = (value(bits) + value(bits + 1)) / 2.0;
            let tie = middle as f32;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(f64::from(tie), middle);
            assert_eq!(encode(format, &[tie], None), even.to_le_bytes(), "{format} {bits:04x}");
            assert_eq!(encode(format, &[tie.next_down()], None), bits.to_le_bytes(), "{format} {bits:04x}");
            assert_eq!(
                encode(format, &[tie.next_up()], None),
                (bits + 1).to_le_bytes(),
                "{format} {bits:04x}"
            );
        }
    }
}

#[test]
fn a_bfloat_nan_stays_one_and_becomes_quiet() {
    for bits in [0x7f80_0001, 0x7fbf_ffff, 0xff80_0001, 0x7fff_ffff, 0x7fc0_0000] {
        let nan = plain::bf16_from_f32(f32::from_bits(bits));
        assert_eq!(nan & 0x7fc0, 0x7fc0, "{bits:08x}");
        assert_eq!(nan >> 15, (bits >> 31) as u16, "{bits:08x}");
    }
}

#[test]
fn single_and_double_precision_keep_every_bit() {
    let weights: Vec<f32> = (0..10_000)
        .map(|i: u32| f32::from_bits(i.wrapping_mul(0x9e37_79b9)))
        .filter(|w| w.is_finite())
        .chain([0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1)])
        .collect();
    for format in [Format::F32, Format::F64] {
        let back = round_trip(format, &weights, None);
        assert!(weights.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()), "{format}");
    }
}

#[test]
fn integers_decode_to_the_nearest_float() {
    for value in [0, 1, -1, 127, -128, 32767, -32768, i64::from(i32::MAX), 16_777_217, i64::MIN, i64::MAX] {
        let bytes = value.to_le_bytes();
        assert_eq!(decode(Format::I64, &bytes), [value as f32]);
        assert_eq!(decode(Format::I32, &bytes[..4]), [value as i32 as f32]);
        assert_eq!(decode(Format::I16, &bytes[..2]), [f32::from(value as i16)]);
        assert_eq!(decode(Format::I8, &bytes[..1]), [f32::from(value as i8)]);
    }
}

#[test]
fn a_dot_product_keeps_eight_strided_sums() {
    for format in [Format::F32, Format::F16, Format::BF16, Format::F64] {
        for n in (0..70).chain([512, 1000]) {
            let mut random = Random(n as u64);
            let (row, x) = (encode(format, &random.normals(n, 1.0), None), random.normals(n, 1.0));
            let weights = decode(format, &row);
            let strided = |lane: usize| {
                let columns = (lane..n).step_by(8);
                columns.fold(0.0f32, |acc, i| weights[i].mul_add(x[i], acc))
            };
            let s: Vec<f32> = (0..8).map(strided).collect();
            let expected = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
            assert_eq!(format.dot_f32(&row, &x).to_bits(), expected.to_bits(), "{format}, {n} elements");
        }
    }
}
