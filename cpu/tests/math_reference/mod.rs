//! What `tests/math.rs` and `examples/math_exhaustive.rs` share: each function with its f64 reference and its bound.

use llamay_cpu::math;

/// How far a result may be from the reference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Units in the last place of the (rounded) reference.
    Ulp(f64),
    /// A multiple of |x|.
    OfArgument(f64),
}

/// A function applied to each element.
pub(crate) type Map = fn(&[f32], &mut [f32]);

/// One function of one argument, in every form this machine can run.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) plain: Map,
    /// The same source compiled for wider instruction sets.
    pub(crate) vector: Vec<(&'static str, Map)>,
    pub(crate) reference: fn(f64) -> f64,
    pub(crate) bound: Bound,
    /// The arguments the bound is stated for.
    pub(crate) domain: fn(f32) -> bool,
}

impl Function {
    /// The error of `y = f(x)` in the unit of the bound; infinite where no error is acceptable.
    pub(crate) fn error(&self, x: f32, y: f32) -> f64 {
        if y.is_subnormal() || (y == 0.0 && y.is_sign_negative()) {
            return f64::INFINITY;
        }
        let exact = (self.reference)(f64::from(x));
        if exact.is_nan() || y.is_nan() {
            return if exact.is_nan() && y.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if y.is_infinite() {
            return if exact as f32 == y { 0.0 } else { f64::INFINITY };
        }
        // exp gives up at e^-87.3, a little above the least normal number.
        if y == 0.0 && exact.abs() < 1.22e-38 {
            return 0.0;
        }
        let difference = (f64::from(y) - exact).abs();
        match self.bound {
            Bound::Ulp(_) => difference / ulp(exact),
            Bound::OfArgument(_) => difference / f64::from(x).abs(),
        }
    }

    pub(crate) fn limit(&self) -> f64 {
        match self.bound {
            Bound::Ulp(limit) | Bound::OfArgument(limit) => limit,
        }
    }
}

/// The distance of neighbouring f32 at |v|.
fn ulp(v: f64) -> f64 {
    let exponent = ((v.abs().to_bits() >> 52) as i32 - 1023).max(-126);
    2f64.powi(exponent - 23)
}

macro_rules! function {
    ($name:literal, $f:expr, $reference:expr, $bound:expr, $domain:expr) => {{
        fn plain(xs: &[f32], ys: &mut [f32]) {
            for (x, y) in xs.iter().zip(ys) {
                *y = $f(*x);
            }
        }
        #[allow(unused_mut)]
        let mut vector: Vec<(&'static str, Map)> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma")]
            fn avx2(xs: &[f32], ys: &mut [f32]) {
                for (x, y) in xs.iter().zip(ys) {
                    *y = $f(*x);
                }
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,fma")]
            fn avx512(xs: &[f32], ys: &mut [f32]) {
                for (x, y) in xs.iter().zip(ys) {
                    *y = $f(*x);
                }
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the features were just detected.
                vector.push(("avx2", |xs, ys| unsafe { avx2(xs, ys) }));
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("fma")
            {
                // SAFETY: the features were just detected.
                vector.push(("avx512", |xs, ys| unsafe { avx512(xs, ys) }));
            }
        }
        Function { name: $name, plain, vector, reference: $reference, bound: $bound, domain: $domain }
    }};
}

fn everywhere(_: f32) -> bool {
    true
}

/// −∞ aside, where x / (1 + e^-x) is −∞ / ∞.
fn finite(x: f32) -> bool {
    x != f32::NEG_INFINITY
}

/// silu gives up where 1 + e^-x overflows, at results below 3e-37.
fn not_far_left(x: f32) -> bool {
    x.is_nan() || x > -88.72
}

fn angle(x: f32) -> bool {
    x.abs() <= math::MAX_ANGLE
}

/// Every function of `llamay_cpu::math` that takes one argument.
pub(crate) fn functions() -> Vec<Function> {
    vec![
        function!("exp", math::exp, libm::exp, Bound::Ulp(1.1), everywhere),
        function!("tanh", math::tanh, libm::tanh, Bound::Ulp(3.0), everywhere),
        function!("erf", math::erf, libm::erf, Bound::Ulp(1.5), everywhere),
        function!("sin", |x| math::sin_cos(x).0, libm::sin, Bound::Ulp(1.1), angle),
        function!("cos", |x| math::sin_cos(x).1, libm::cos, Bound::Ulp(1.1), angle),
        function!("sigmoid", math::sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), Bound::Ulp(3.0), everywhere),
        function!("silu", math::silu, |x| x / (1.0 + libm::exp(-x)), Bound::Ulp(3.0), not_far_left),
        function!("gelu_tanh", math::gelu_tanh, gelu_tanh, Bound::OfArgument(1.5e-7), finite),
        function!("gelu_erf", math::gelu_erf, gelu_erf, Bound::OfArgument(1.5e-7), finite),
        function!("recip", math::recip, |x| 1.0 / x, Bound::Ulp(0.5), everywhere),
        function!("recip_newton", math::recip_newton, |x| 1.0 / x, Bound::Ulp(0.5), |x| !x.is_subnormal()),
        function!("rsqrt", math::rsqrt, |x| 1.0 / libm::sqrt(x), Bound::Ulp(1.5), everywhere),
    ]
}

fn gelu_tanh(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + libm::tanh(u))
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}
