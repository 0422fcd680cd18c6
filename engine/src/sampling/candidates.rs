//! The tokens still in the running, and the filters that thin them out.

use std::cmp::Ordering;

/// One token in the running.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
    /// exp(logit - largest logit): the probability at temperature 1, up to a common factor.
    weight: f64,
}

/// The most likely first, the lower id first among equals: a total order, so sorting has one result only.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
}

/// The tokens still in the running. The buffers are kept between calls, so a warm sampler allocates nothing.
///
/// Between the filters the candidates are either in the order of their ids or in the order of [`by_rank`]; sums and the
/// draw run in that order, which makes their rounding reproducible.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidates {
    items: Vec<Candidate>,
    ranked: bool,
    /// Scratch of [`Self::typical`]: how atypical a candidate is, and its index in `items`.
    atypical: Vec<(f64, usize)>,
}

impl Candidates {
    /// Takes in the `top_k` tokens with the largest logits (all of them if 0) that are not banned. `best` is the largest
    /// logit.
    pub(super) fn collect(&mut self, logits: &[f32], top_k: usize, best: f32) {
        self.items.clear();
        self.ranked = top_k != 0;
        let candidate = |token: usize, logit| Candidate { token: token as u32, logit, weight: 0.0 };
        let allowed = logits.iter().copied().enumerate().filter(|&(_, logit)| logit > f32::NEG_INFINITY);
        if top_k == 0 {
            self.items.extend(allowed.map(|(token, logit)| candidate(token, logit)));
        } else {
            // Most logits are below the k-th largest so far and are passed over; the buffer is cut back to k whenever it
            // is full. A later token equal to the k-th has the higher id and loses, so `>` is exact.
            let full = top_k.saturating_mul(2).max(256);
            let mut floor = f32::NEG_INFINITY;
            for (token, logit) in allowed {
                if logit > floor {
                    self.items.push(candidate(token, logit));
                    if self.items.len() == full {
                        floor = self.items.select_nth_unstable_by(top_k - 1, by_rank).1.logit;
                        self.items.truncate(top_k);
                    }
                }
            }
            if self.items.len() > top_k {
                self.items.select_nth_unstable_by(top_k - 1, by_rank);
                self.items.truncate(top_k);
            }
            self.items.sort_unstable_by(by_rank);
        }
        for item in &mut self.items {
            item.weight = libm::exp(f64::from(item.logit) - f64::from(best));
        }
    }

    /// Keeps the candidates whose information -ln p is closest to its mean, the entropy, until they have more than
    /// `mass` of the probability.
    pub(super) fn typical(&mut self, mass: f64) {
        if mass >= 1.0 || self.items.len() <= 1 {
            return;
        }
        let total = self.total();
        let probability = |item: &Candidate| item.weight / total;
        // A candidate too unlikely for an f64 adds nothing to the entropy, as p·ln p goes to 0 with p.
        let information = |item: &Candidate| -libm::log(probability(item).max(f64::MIN_POSITIVE));
        let entropy: f64 = self.items.iter().map(|item| probability(item) * information(item)).sum();

        self.atypical.clear();
        self.atypical.extend(
            self.items.iter().enumerate().map(|(index, item)| ((information(item) - entropy).abs(), index)),
        );
        self.atypical.sort_unstable_by(|a, b| {
            a.0.total_cmp(&b.0).then_with(|| by_rank(&self.items[a.1], &self.items[b.1]))
        });
        let mut sum = 0.0;
        let kept = self.atypical.iter().position(|&(_, index)| {
            sum += probability(&self.items[index]);
            sum > mass
        });
        self.atypical.truncate(kept.map_or(usize::MAX, |last| last + 1));

        // Back in the order that they had, moving only towards the front.
        self.atypical.sort_unstable_by_key(|&(_, index)| index);
        for (to, &(_, from)) in self.atypical.iter().enumerate() {
            self.items[to] = self.items[from];
        }
        self.items.truncate(self.atypical.len());
    }

    /// Keeps the fewest most likely candidates that have at least `mass` of the probability.
    pub(super) fn top_p(&mut self, mass: f64) {
        if mass >= 1.0 || self.items.len() <= 1 {
            return;
        }
        let target = mass * self.total();
        // The nucleus is small as a rule: rank a few, then four times as many, before ranking a whole vocabulary.
        let mut ranked = if self.ranked { self.items.len() } else { 0 };
        let mut sum = 0.0;
        let mut kept = 0;
        while kept < self.items.len() {
            if kept == ranked {
                ranked = (ranked * 4).max(128).min(self.items.len());
                let rest = &mut self.items[kept..];
                let wanted = ranked - kept;
                if wanted < rest.len() {
                    rest.select_nth_unstable_by(wanted - 1, by_rank);
                }
                rest[..wanted].sort_unstable_by(by_rank);
            }
            sum += self.items[kept].weight;
            kept += 1;
            if sum >= target {
                break;
            }
        }
        self.items.truncate(kept);
        self.ranked = true;
    }

    /// Drops the candidates that are less likely than `fraction` times the most likely one.
    pub(super) fn min_p(&mut self, fraction: f64) {
        // The typical filter may have dropped the most likely token of all.
        let best = self.items.iter().map(|item| item.weight).fold(0.0, f64::max);
        if fraction > 0.0 {
            self.items.retain(|item| item.weight >= fraction * best);
        }
    }

    /// The token at the point `uniform`, from [0, 1), of the probability distribution at this temperature (above 0).
    pub(super) fn draw(&mut self, temperature: f64, uniform: f64) -> u32 {
        let best = self.items.iter().map(|item| item.logit).fold(f32::NEG_INFINITY, f32::max);
        for item in &mut self.items {
            item.weight = libm::exp((f64::from(item.logit) - f64::from(best)) / temperature);
        }
        let point = uniform * self.total();
        let mut sum = 0.0;
        let mut chosen = 0;
        for item in &self.items {
            // Rounding may leave `point` at the very end; the last token with any weight is meant then.
            if item.weight > 0.0 {
                sum += item.weight;
                chosen = item.token;
                if point < sum {
                    break;
                }
            }
        }
        chosen
    }

    fn total(&self) -> f64 {
        self.items.iter().map(|item| item.weight).sum()
    }
}
