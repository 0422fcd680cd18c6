//! The sampling chain: each filter against its definition, the draws against the distribution, and reproducibility.

use std::collections::BTreeSet;

use llamay_engine::sampling::{SampleError, Sampler, SamplingParams};
use proptest::prelude::*;

/// No filter, no penalty: the plain softmax at this temperature.
fn plain(temperature: f32) -> SamplingParams {
    SamplingParams {
        temperature,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        typical_p: 1.0,
        seed: Some(42),
        ..SamplingParams::default()
    }
}

fn sampler(params: SamplingParams, n_vocab: usize) -> Sampler {
    Sampler::new(params, n_vocab).unwrap()
}

/// Every token that the sampler draws. Drawing at a high temperature makes each survivor of the filters, which see
/// temperature 1, about as likely as any other; with 60 draws for each token it is missed with probability e^-60.
fn survivors(params: SamplingParams, logits: &[f32]) -> BTreeSet<u32> {
    let mut sampler = sampler(SamplingParams { temperature: 1e6, ..params }, logits.len());
    (0..60 * logits.len()).map(|_| sampler.sample(logits).unwrap()).collect()
}

/// Softmax in f64.
fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn widen(logits: &[f32]) -> Vec<f64> {
    logits.iter().copied().map(f64::from).collect()
}

/// Token ids, the most likely first, the lower id first among equals.
fn ranked(logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    tokens.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    tokens
}

/// Takes tokens from `order` until `enough` says that their probability together will do.
fn take_mass(order: &[u32], p: &[f64], enough: impl Fn(f64) -> bool) -> BTreeSet<u32> {
    let mut sum = 0.0;
    let mut taken = BTreeSet::new();
    for &token in order {
        taken.insert(token);
        sum += p[token as usize];
        if enough(sum) {
            break;
        }
    }
    taken
}

/// The tokens within rounding distance of a filter's limit may fall on either side; such inputs prove nothing.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    // Coarse steps, so that equal logits occur; some tokens banned.
    let logit = prop_oneof![9 => (-32i32..32).prop_map(|n| n as f32 / 8.0), 1 => Just(f32::NEG_INFINITY)];
    prop::collection::vec(logit, 1..40)
        .prop_filter("one token is allowed", |logits| logits.iter().any(|logit| logit.is_finite()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn top_k_keeps_the_k_largest(logits in logits(), top_k in 1usize..50) {
        let expected: BTreeSet<u32> = ranked(&logits)
            .into_iter()
            .take(top_k)
            .filter(|&token| logits[token as usize].is_finite())
            .collect();
        prop_assert_eq!(survivors(SamplingParams { top_k, ..plain(1.0) }, &logits), expected);
    }

    #[test]
    fn top_p_keeps_the_smallest_nucleus(logits in logits(), top_p in 0.0f32..1.0) {
        let p = softmax(&widen(&logits));
        let limit = f64::from(top_p);
        let order = ranked(&logits);
        let mut sum = 0.0;
        for &token in &order {
            sum += p[token as usize];
            prop_assume!(!near(sum, limit));
        }
        let expected = take_mass(&order, &p, |sum| sum >= limit);
        prop_assert_eq!(survivors(SamplingParams { top_p, ..plain(1.0) }, &logits), expected);
    }

    #[test]
    fn min_p_keeps_what_is_likely_next_to_the_best(logits in logits(), min_p in 0.001f32..=1.0) {
        let p = softmax(&widen(&logits));
        let limit = f64::from(min_p) * p.iter().copied().fold(0.0, f64::max);
        prop_assume!(min_p == 1.0 || p.iter().all(|&p| !near(p, limit)));
        let expected: BTreeSet<u32> =
            (0..logits.len() as u32).filter(|&token| p[token as usize] >= limit).collect();
        prop_assert_eq!(survivors(SamplingParams { min_p, ..plain(1.0) }, &logits), expected);
    }

    #[test]
    fn typical_keeps_what_is_closest_to_the_entropy(logits in logits(), typical_p in 0.0f32..1.0) {
        let p = softmax(&widen(&logits));
        let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
        let surprise = |token: u32| (-p[token as usize].ln() - entropy).abs();
        let mut order: Vec<u32> = ranked(&logits);
        order.retain(|&token| logits[token as usize].is_finite());
        // Two different logits on either side of the entropy may be equally far from it, but for rounding.
        for &a in &order {
            for &b in &order {
                prop_assume!(logits[a as usize] == logits[b as usize] || !near(surprise(a), surprise(b)));
            }
        }
        order.sort_by(|&a, &b| {
            let equal = logits[a as usize] == logits[b as usize];
            if equal { a.cmp(&b) } else { surprise(a).total_cmp(&surprise(b)) }
        });
        let limit = f64::from(typical_p);
        let mut sum = 0.0;
        for &token in &order {
            sum += p[token as usize];
            prop_assume!(!near(sum, limit));
        }
        let expected = take_mass(&order, &p, |sum| sum > limit);
        prop_assert_eq!(survivors(SamplingParams { typical_p, ..plain(1.0) }, &logits), expected);
    }

    #[test]
    fn filters_run_one_after_the_other(logits in logits(), top_k in 1usize..20, top_p in 0.1f32..1.0, min_p in 0.01f32..0.9) {
        let kept = ranked(&logits);
        let kept: Vec<u32> =
            kept.into_iter().take(top_k).filter(|&token| logits[token as usize].is_finite()).collect();
        // The nucleus is one of what top-k left, not of the whole vocabulary.
        let p = softmax(&kept.iter().map(|&token| f64::from(logits[token as usize])).collect::<Vec<_>>());
        let mut expected = BTreeSet::new();
        let mut sum = 0.0;
        for (&token, &p_token) in kept.iter().zip(&p) {
            if sum >= f64::from(top_p) {
                break;
            }
            sum += p_token;
            prop_assume!(!near(sum, f64::from(top_p)) && !near(p_token, f64::from(min_p) * p[0]));
            if p_token >= f64::from(min_p) * p[0] {
                expected.insert(token);
            }
        }
        prop_assert_eq!(survivors(SamplingParams { top_k, top_p, min_p, ..plain(1.0) }, &logits), expected);
    }

    #[test]
    fn greedy_and_top_1_take_the_largest_logit(logits in logits(), seed: u64) {
        let best = ranked(&logits)[0];
        let greedy = SamplingParams { seed: Some(seed), typical_p: 0.3, ..SamplingParams::greedy() };
        prop_assert_eq!(sampler(greedy, logits.len()).sample(&logits), Ok(best));
        let top_1 = SamplingParams { top_k: 1, seed: Some(seed), ..SamplingParams::default() };
        prop_assert_eq!(sampler(top_1, logits.len()).sample(&logits), Ok(best));
        let no_nucleus = SamplingParams { top_p: 0.0, seed: Some(seed), ..plain(1.0) };
        prop_assert_eq!(sampler(no_nucleus, logits.len()).sample(&logits), Ok(best));
    }

    #[test]
    fn penalties_follow_their_definition(
        logits in prop::collection::vec(-8.0f32..8.0, 8),
        history in prop::collection::vec(0u32..8, 0..20),
        repeat_last_n in 0usize..24,
        repeat_penalty in 0.5f32..2.0,
        presence_penalty in -2.0f32..2.0,
        frequency_penalty in -2.0f32..2.0,
        bias in -4.0f32..4.0,
    ) {
        let window = &history[history.len().saturating_sub(repeat_last_n)..];
        let mut expected = logits.clone();
        expected[3] += bias;
        for token in 0..8 {
            let count = window.iter().filter(|&&seen| seen == token).count();
            if count > 0 {
                let logit = &mut expected[token as usize];
                if *logit > 0.0 { *logit /= repeat_penalty } else { *logit *= repeat_penalty }
                *logit -= count as f32 * frequency_penalty + presence_penalty;
            }
        }
        let params = SamplingParams {
            repeat_last_n, repeat_penalty, presence_penalty, frequency_penalty,
            logit_bias: vec![(3, bias)],
            ..SamplingParams::greedy()
        };
        let mut sampler = sampler(params, 8);
        history.iter().for_each(|&token| sampler.accept(token));
        prop_assert_eq!(sampler.sample(&logits), Ok(ranked(&expected)[0]));
        sampler.reset();
        let mut forgotten = logits.clone();
        forgotten[3] += bias;
        prop_assert_eq!(sampler.sample(&logits), Ok(ranked(&forgotten)[0]));
    }

    #[test]
    fn a_large_vocabulary_is_filtered_like_a_small_one(seed: u64, top_k in 1usize..400, top_p in 0.1f32..1.0) {
        // Beyond the size of the buffers; the logits are distinct multiples of 2^-10.
        let n = 3000u64;
        let logits: Vec<f32> = (0..n).map(|i| ((i.wrapping_mul(2 * (seed >> 1) + 1) ^ seed) % 4096) as f32 / 1024.0).collect();
        let order = ranked(&logits);
        let mut filtered = vec![f32::NEG_INFINITY; logits.len()];
        let p = softmax(&order[..top_k].iter().map(|&token| f64::from(logits[token as usize])).collect::<Vec<_>>());
        let mut sum = 0.0;
        for (&token, p) in order.iter().zip(&p) {
            if sum >= f64::from(top_p) {
                break;
            }
            sum += p;
            prop_assume!(!near(sum, f64::from(top_p)));
            filtered[token as usize] = logits[token as usize];
        }
        // Same seed, same survivors in the same order, so the same draws.
        let mut through_filters = sampler(SamplingParams { top_k, top_p, seed: Some(seed), ..plain(1.0) }, logits.len());
        let mut by_hand = sampler(SamplingParams { top_k, seed: Some(seed), ..plain(1.0) }, logits.len());
        for _ in 0..20 {
            prop_assert_eq!(through_filters.sample(&logits), by_hand.sample(&filtered));
        }
    }

    #[test]
    fn any_logits_and_params_give_a_legal_token_or_an_error(
        logits in prop::collection::vec(any::<f32>(), 1..30),
        temperature in prop_oneof![Just(0.0f32), Just(f32::MIN_POSITIVE), Just(f32::MAX), 0.1f32..3.0],
        top_k in 0usize..40, top_p in 0.0f32..=1.0, min_p in 0.0f32..=1.0, typical_p in 0.0f32..=1.0,
        presence_penalty in any::<f32>().prop_filter("finite", |x| x.is_finite()),
    ) {
        let params = SamplingParams {
            temperature, top_k, top_p, min_p, typical_p, presence_penalty, seed: Some(1), ..SamplingParams::default()
        };
        let mut sampler = sampler(params, logits.len());
        sampler.accept(0);
        sampler.accept(1_000_000);
        if let Ok(token) = sampler.sample(&logits) {
            prop_assert!(logits[token as usize] > f32::NEG_INFINITY);
        }
    }
}

#[test]
fn draws_follow_the_distribution() {
    let logits = [0.0f32, 1.0, 2.0, -1.0, 0.5, 0.5, -3.0, 1.5];
    for temperature in [0.5f32, 1.0, 2.0] {
        let scaled: Vec<f64> =
            logits.iter().map(|&logit| f64::from(logit) / f64::from(temperature)).collect();
        let p = softmax(&scaled);
        let mut sampler = sampler(plain(temperature), logits.len());
        let draws = 100_000;
        let mut counts = [0u32; 8];
        for _ in 0..draws {
            counts[sampler.sample(&logits).unwrap() as usize] += 1;
        }
        let chi_square: f64 = counts
            .iter()
            .zip(&p)
            .map(|(&count, p)| {
                let expected = p * f64::from(draws);
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        // The 99.9% quantile with 7 degrees of freedom. The seed is fixed, so this passes always or never.
        assert!(chi_square < 24.32, "temperature {temperature}: {chi_square}, {counts:?}");
    }
}

#[test]
fn a_seed_gives_the_same_tokens_everywhere() {
    // The logits are exact in f32, so this also pins exp and the generator across platforms.
    let logits: Vec<f32> = (0..1000u32).map(|i| (i.wrapping_mul(2654435761) >> 22) as f32 / 128.0).collect();
    let mut first = sampler(SamplingParams { seed: Some(1234), ..SamplingParams::default() }, 1000);
    let mut copy = first.clone();
    // Agrees with the same chain written in Python.
    let golden = [919u32, 21, 288, 809, 542, 775, 110, 665, 576, 76, 144, 432, 686, 21, 364, 974];
    let tokens: Vec<u32> = (0..16).map(|_| first.sample(&logits).unwrap()).collect();
    assert_eq!(tokens, golden);
    assert_eq!((0..16).map(|_| copy.sample(&logits).unwrap()).collect::<Vec<_>>(), golden);
    first.reset();
    assert_eq!((0..16).map(|_| first.sample(&logits).unwrap()).collect::<Vec<_>>(), golden);
    let mut other = sampler(SamplingParams { seed: Some(1235), ..SamplingParams::default() }, 1000);
    assert_ne!((0..16).map(|_| other.sample(&logits).unwrap()).collect::<Vec<_>>(), golden);
}

#[test]
fn an_unseeded_sampler_tells_its_seed() {
    let logits: Vec<f32> = (0..64).map(|i| (i % 7) as f32 / 4.0).collect();
    let mut unseeded = sampler(SamplingParams { seed: None, ..plain(1.0) }, 64);
    let mut again = sampler(SamplingParams { seed: Some(unseeded.seed()), ..plain(1.0) }, 64);
    for _ in 0..50 {
        assert_eq!(unseeded.sample(&logits), again.sample(&logits));
    }
}

#[test]
fn an_infinite_negative_bias_bans_a_token() {
    let params = SamplingParams { logit_bias: vec![(1, f32::NEG_INFINITY), (2, 100.0)], ..plain(1.0) };
    let mut banning = sampler(params.clone(), 3);
    for _ in 0..100 {
        assert_eq!(banning.sample(&[1.0, 50.0, -40.0]), Ok(2));
    }
    let mut greedy = sampler(SamplingParams { temperature: 0.0, ..params }, 3);
    assert_eq!(greedy.sample(&[60.5, 100.0, -40.0]), Ok(0));
}

#[test]
fn a_vocabulary_of_one_token_has_one_answer() {
    for params in [SamplingParams::default(), SamplingParams::greedy(), plain(1.0)] {
        assert_eq!(sampler(params, 1).sample(&[-7.5]), Ok(0));
    }
}

#[test]
fn illegal_logits_are_errors_that_name_the_token() {
    for params in [SamplingParams::default(), SamplingParams::greedy()] {
        let mut sampler = sampler(SamplingParams { logit_bias: vec![(0, 1.0)], ..params }, 3);
        let error = sampler.sample(&[0.0, 1.0, f32::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "the logit of token 2 is NaN, not a finite number");
        let error = sampler.sample(&[0.0, f32::INFINITY, f32::NAN]).unwrap_err();
        assert_eq!(error, SampleError::BadLogit { token: 1, logit: f32::INFINITY });
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 3]), Err(SampleError::AllBanned));
        assert_eq!(sampler.sample(&[0.0; 2]), Err(SampleError::WrongLength { got: 2, n_vocab: 3 }));
    }
}

#[test]
fn illegal_parameters_are_errors_that_name_them() {
    let default = SamplingParams::default;
    for (params, sentence) in [
        (SamplingParams { temperature: -1.0, ..default() }, "temperature is -1, but it must be 0 or more"),
        (SamplingParams { top_p: 1.5, ..default() }, "top_p is 1.5, but it must be from 0 to 1"),
        (SamplingParams { min_p: f32::NAN, ..default() }, "min_p is NaN, but it must be from 0 to 1"),
        (SamplingParams { typical_p: -0.1, ..default() }, "typical_p is -0.1, but it must be from 0 to 1"),
        (
            SamplingParams { repeat_penalty: 0.0, ..default() },
            "repeat_penalty is 0, but it must be more than 0",
        ),
        (
            SamplingParams { presence_penalty: f32::INFINITY, ..default() },
            "presence_penalty is inf, but it must be a finite number",
        ),
        (
            SamplingParams { logit_bias: vec![(5, f32::NAN)], ..default() },
            "logit_bias of token 5 is NaN, but it must be a finite number or -inf",
        ),
        (
            SamplingParams { logit_bias: vec![(10, 1.0)], ..default() },
            "logit_bias token is 10, but it must be from 0 to 9",
        ),
    ] {
        assert_eq!(Sampler::new(params, 10).unwrap_err().to_string(), sentence);
    }
    assert!(Sampler::new(default(), 0).is_err());
    assert!(default().validate().is_ok());
}

#[test]
fn the_history_is_a_window_over_the_last_tokens() {
    let params = SamplingParams { repeat_last_n: 2, presence_penalty: 10.0, ..SamplingParams::greedy() };
    let mut sampler = sampler(params, 3);
    let logits = [3.0, 2.0, 1.0];
    // Taking the best token that is not among the last two goes round.
    let tokens: Vec<u32> = (0..6)
        .map(|_| {
            let token = sampler.sample(&logits).unwrap();
            sampler.accept(token);
            token
        })
        .collect();
    assert_eq!(tokens, [0, 1, 2, 0, 1, 2]);
}
