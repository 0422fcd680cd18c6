//! Perplexity of a text, by the definition that llama.cpp's tool made common.
//!
//! The text's tokens are cut into chunks of the context length, and the rest that fills no chunk is left out. In each chunk
//! the first token is replaced by BOS if the model wants one; the second half is scored, each token by its probability
//! behind the tokens of the chunk before it.

use crate::{Cancel, Error, Logits, Model};

/// A perplexity, so far or final.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// `exp` of the mean negative log-likelihood.
    pub ppl: f64,
    /// Standard error of `ppl`.
    pub stderr: f64,
    /// Chunks scored.
    pub chunks: usize,
    /// Tokens scored.
    pub tokens: usize,
}

/// Tokens whose logits are held at once: with a vocabulary of 262144 they take 64 MiB.
const SCORED_AT_ONCE: usize = 64;

/// Sums over the scored tokens.
#[derive(Default)]
struct Sums {
    nll: f64,
    nll2: f64,
    n: usize,
}

impl Sums {
    fn add(&mut self, nll: f64) {
        self.nll += nll;
        self.nll2 += nll * nll;
        self.n += 1;
    }

    fn perplexity(&self, chunks: usize) -> Perplexity {
        let n = self.n as f64;
        let mean = self.nll / n;
        let variance = self.nll2 / n - mean * mean;
        let ppl = mean.exp();
        let stderr = if self.n > 1 && variance > 0.0 { ppl * (variance / (n - 1.0)).sqrt() } else { 0.0 };
        Perplexity { ppl, stderr, chunks, tokens: self.n }
    }
}

/// Negative log of the probability that `logits` give `token`.
fn negative_log_likelihood(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
    let sum: f64 = logits.iter().map(|v| f64::from(v - max).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - max)
}

impl Model {
    /// Perplexity of `text` in chunks of `context` tokens; `progress` hears the value after each of all chunks.
    ///
    /// # Errors
    /// A context below 8 or beyond the model's, a text of less than two chunks, a failed step. When cancelled, the value so
    /// far, or an error if there is none.
    pub fn perplexity(
        &self,
        text: &str,
        context: usize,
        cancel: &Cancel,
        progress: &mut dyn FnMut(&Perplexity, usize),
    ) -> Result<Perplexity, Error> {
        if context < 8 || context > self.context() {
            let limit = self.context();
            return Err(Error::Unfit(format!(
                "a context of {context} is not between 8 and the model's {limit}"
            )));
        }
        let options = llamay_tokenizer::EncodeOptions { add_special: true, parse_special: false };
        let tokens = self.tokenizer().encode(text, options);
        if tokens.len() < 2 * context {
            let (n, needed) = (tokens.len(), 2 * context);
            return Err(Error::Unfit(format!(
                "the text has {n} tokens, and a context of {context} needs {needed}"
            )));
        }
        let bos = self.tokenizer().bos().filter(|_| self.tokenizer().add_bos());
        let n_chunks = tokens.len() / context;
        let mut sums = Sums::default();
        let mut result = None;
        for (i, chunk) in tokens.chunks_exact(context).enumerate() {
            let mut chunk = chunk.to_vec();
            let first = context / 2;
            let targets = chunk[first + 1..].to_vec();
            if let Some(bos) = bos {
                chunk[0] = bos;
            }
            let mut session = self.session();
            session.feed_with(&chunk[..first], Logits::None, cancel, &mut |_| {})?;
            // The last token's logits would score a token of the next chunk.
            let scored = &chunk[first..context - 1];
            for (tokens, targets) in scored.chunks(SCORED_AT_ONCE).zip(targets.chunks(SCORED_AT_ONCE)) {
                session.feed_with(tokens, Logits::All, cancel, &mut |_| {})?;
                for (logits, target) in session.logits().chunks_exact(self.n_vocab()).zip(targets) {
                    sums.add(negative_log_likelihood(logits, *target));
                }
            }
            if cancel.is_cancelled() {
                break;
            }
            let so_far = sums.perplexity(i + 1);
            progress(&so_far, n_chunks);
            result = Some(so_far);
        }
        result.ok_or_else(|| Error::Unfit("cancelled before the first chunk was scored".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_guess_has_the_perplexity_of_its_choices() {
        let mut sums = Sums::default();
        for token in 0..10 {
            sums.add(negative_log_likelihood(&[3.0; 32], token));
        }
        let p = sums.perplexity(1);
        assert!((p.ppl - 32.0).abs() < 1e-9 && p.stderr < 1e-6 && p.tokens == 10, "{p:?}");
    }

    #[test]
    fn the_standard_error_is_that_of_the_mean_times_the_perplexity() {
        let mut sums = Sums::default();
        [1.0, 2.0, 3.0, 4.0].iter().for_each(|v| sums.add(*v));
        let p = sums.perplexity(1);
        let want = 2.5f64.exp() * (1.25f64 / 3.0).sqrt();
        assert!((p.stderr - want).abs() < 1e-9, "{p:?}");
    }
}
