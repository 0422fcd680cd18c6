//! The elementary functions: accuracy, edges, and the same bits from every instruction set.

mod math_reference;

use llamay_cpu::math;
use math_reference::{Function, functions};

/// Every `stride`-th f32, by bit pattern, in blocks.
fn sample(stride: usize, mut visit: impl FnMut(&[f32])) {
    let all: Vec<f32> = (0..=u32::MAX).step_by(stride).map(f32::from_bits).collect();
    all.chunks(4096).for_each(&mut visit);
}

/// What one would rather not have in a loop over plain values.
fn edges() -> Vec<f32> {
    let mut edges = vec![0.0, f32::MIN_POSITIVE, f32::EPSILON, f32::MAX, f32::INFINITY, f32::NAN];
    for v in
        [1e-45, 1e-40, 0.3466, 0.5, 0.9375, 1.0, 2.0, 3.95, 10.0, 87.3, 88.72, 88.722_84, 89.0, 104.0, 1e10]
    {
        edges.extend([v, f32::from_bits(f32::to_bits(v) + 1), f32::from_bits(f32::to_bits(v) - 1)]);
    }
    for quarter in 1..200_000 {
        edges.push((f64::from(quarter) * std::f64::consts::FRAC_PI_2) as f32);
        edges.push(-(f64::from(quarter) * 7.0 * std::f64::consts::FRAC_PI_4) as f32);
    }
    edges.extend([math::MAX_ANGLE, 0.5 * math::MAX_ANGLE, 131_072.0, 1_048_576.0]);
    let negative: Vec<f32> = edges.iter().map(|x| -x).collect();
    edges.extend(negative);
    edges
}

fn assert_within_bound(function: &Function, xs: &[f32]) {
    let mut ys = vec![0.0; xs.len()];
    // The widest form: the plain one may call a library for every fma.
    let widest = function.vector.last().map_or(function.plain, |(_, f)| *f);
    widest(xs, &mut ys);
    for (&x, &y) in xs.iter().zip(&ys) {
        if (function.domain)(x) {
            let error = function.error(x, y);
            assert!(error <= function.limit(), "{}({x:e}) = {y:e}: error {error:e}", function.name);
        }
    }
}

#[test]
fn errors_stay_within_their_bounds() {
    for function in functions() {
        assert_within_bound(&function, &edges());
        sample(6007, |xs| assert_within_bound(&function, xs));
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for function in functions() {
        let mut check = |xs: &[f32]| {
            let (mut plain, mut vector) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
            (function.plain)(xs, &mut plain);
            for (isa, f) in &function.vector {
                f(xs, &mut vector);
                for ((x, p), v) in xs.iter().zip(&plain).zip(&vector) {
                    // A NaN is a NaN: which of two payloads an operation passes on is nobody's promise.
                    let same = p.to_bits() == v.to_bits() || (p.is_nan() && v.is_nan());
                    assert!(same, "{}({x:e}): plain {p:e}, {isa} {v:e}", function.name);
                }
            }
        };
        check(&edges());
        sample(4099, &mut check);
    }
}

/// The same constants on every target: big-endian, 32 bits, wasm, emulated or not.
#[test]
fn bits_are_those_on_record() {
    let record: Vec<(&str, u64)> = functions()
        .iter()
        .map(|function| {
            let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a over words
            sample(40_009, |xs| {
                let mut ys = vec![0.0; xs.len()];
                (function.plain)(xs, &mut ys);
                for y in ys {
                    let bits = if y.is_nan() { 0x7fc0_0000 } else { y.to_bits() };
                    hash = (hash ^ u64::from(bits)).wrapping_mul(0x100_0000_01b3);
                }
            });
            (function.name, hash)
        })
        .collect();
    let expected = [
        ("exp", 0x37d5_c48f_35b2_7ce8),
        ("tanh", 0xda33_3804_109e_76cf),
        ("erf", 0xcb22_46e9_f399_0f7e),
        ("sin", 0xba61_d217_ab09_4d0f),
        ("cos", 0x9807_900f_4e8f_12b3),
        ("sigmoid", 0x2ea9_fc4e_6d90_62f5),
        ("silu", 0x40bb_2830_3827_0d84),
        ("gelu_tanh", 0x4574_4837_1451_0a00),
        ("gelu_erf", 0xb7b5_7d83_30d3_6bbc),
        ("recip", 0xb200_f309_b64f_a4ee),
        ("recip_newton", 0xda3f_d465_bd24_8eb0),
        ("rsqrt", 0x79f2_af61_1096_2912),
    ];
    assert_eq!(record, expected, "{record:#x?}");
}

#[test]
fn exp_has_no_subnormal_results() {
    assert_eq!(math::exp(0.0), 1.0);
    assert_eq!(math::exp(-0.0), 1.0);
    assert_eq!(math::exp(88.722_84), f32::INFINITY);
    assert!(math::exp(88.72).is_finite());
    assert!(math::exp(-87.3).is_normal());
    assert_eq!(math::exp(-87.300_01), 0.0);
    assert_eq!(math::exp(f32::NEG_INFINITY), 0.0);
    assert!(math::exp(f32::NAN).is_nan());
}

#[test]
fn odd_and_even_symmetries_hold_bit_for_bit() {
    sample(30_011, |xs| {
        for &x in xs.iter().filter(|x| !x.is_nan()) {
            assert_eq!(math::tanh(-x), -math::tanh(x));
            assert_eq!(math::erf(-x), -math::erf(x));
            let ((s, c), (sn, cn)) = (math::sin_cos(x), math::sin_cos(-x));
            if x.abs() <= math::MAX_ANGLE {
                assert_eq!((sn, cn), (-s, c));
            } else {
                assert!(s.is_nan() && c.is_nan());
            }
        }
    });
}

/// Markstein's correction rounds correctly for every mantissa, and exponents only shift.
#[test]
fn recip_newton_is_the_ieee_reciprocal_of_every_mantissa() {
    for mantissa in 0..1 << 23 {
        let x = f32::from_bits(0x3f80_0000 | mantissa);
        assert_eq!(math::recip_newton(x).to_bits(), (1.0 / x).to_bits(), "{x:e}");
    }
    for exponent in 0..=255 {
        for mantissa in [0, 1, 2, 0x12_3456, 0x7f_fffe, 0x7f_ffff] {
            let x = f32::from_bits(exponent << 23 | mantissa);
            let (newton, ieee) = (math::recip_newton(x), math::recip(x));
            if x.is_subnormal() {
                assert_eq!(newton, f32::INFINITY);
            } else {
                assert!(newton.to_bits() == ieee.to_bits() || x.is_nan(), "{x:e}: {newton:e} {ieee:e}");
            }
        }
    }
}

#[test]
fn div_newton_is_the_ieee_quotient() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let exponent = 127 - 45 + (state >> 56) as u32 % 91;
        f32::from_bits((state >> 32) as u32 & 0x807f_ffff | exponent << 23)
    };
    for _ in 0..2_000_000 {
        let (a, b) = (random(), random());
        assert_eq!(math::div_newton(a, b).to_bits(), (a / b).to_bits(), "{a:e} / {b:e}");
    }
}
