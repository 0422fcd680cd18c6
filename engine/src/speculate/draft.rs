//! Guesses of a smaller model.

use llamay_gguf::Gguf;

use crate::sampling::Sampler;
use crate::{Cancel, Error, Logits, Model, Session};

/// A draft model's session, which follows a text.
pub(super) struct DraftModel {
    session: Session,
    /// So many of the session's tokens are known to be those of the text; what is behind them was guessed.
    agreed: usize,
    min_p: f32,
    /// Entries of the large model's vocabulary.
    n_vocab: usize,
    /// The last logits, as long as that vocabulary.
    logits: Vec<f32>,
    /// Fed in place of a token that the draft model does not have.
    stand_in: u32,
}

impl DraftModel {
    pub(super) fn new(draft: &Model, model: &Model, min_p: f32) -> DraftModel {
        let tokenizer = draft.tokenizer();
        let stand_in = tokenizer.unk().or(tokenizer.eos()).filter(|t| (*t as usize) < draft.n_vocab());
        DraftModel {
            session: draft.session(),
            agreed: 0,
            min_p,
            n_vocab: model.n_vocab(),
            logits: Vec::new(),
            stand_in: stand_in.unwrap_or(0),
        }
    }

    pub(super) fn fork(&self) -> DraftModel {
        DraftModel { session: self.session.fork(), logits: Vec::new(), ..*self }
    }

    /// Keeps what the session and the text have in common.
    pub(super) fn begin(&mut self, text: &[u32]) {
        self.agreed = 0;
        self.agree(text);
    }

    /// Up to `n` tokens, at least one, that may come behind `text` and then `next`.
    ///
    /// The draft model draws as the large one will, with the same numbers and the same history. So it is right wherever
    /// both models' distributions are alike, at any temperature.
    pub(super) fn guess(
        &mut self,
        text: &[u32],
        next: u32,
        sampler: &Sampler,
        n: usize,
        cancel: &Cancel,
        is_end: &impl Fn(u32) -> bool,
    ) -> Result<Vec<u32>, Error> {
        self.agree(text);
        let mut new: Vec<u32> = text[self.agreed..].iter().map(|token| self.known(*token)).collect();
        new.push(self.known(next));
        let mut guesses = Vec::with_capacity(n);
        // The first guess takes no position of its own.
        let context = self.session.model().context();
        let Some(room) = context.checked_sub(self.session.len() + new.len()) else { return Ok(guesses) };
        let fed = self.session.feed_with(&new, Logits::Last, cancel, &mut |_| {})?;
        self.agreed = self.session.len();
        if fed < new.len() {
            return Ok(guesses);
        }
        let mut sampler = sampler.clone();
        // The probability that all guesses are right, as far as the draft model knows: what the next one is worth.
        let mut certain = 1.0;
        loop {
            self.fit_logits();
            // If no token can be drawn here, that need not be so for the large model.
            let Ok(guess) = sampler.sample(&self.logits) else { return Ok(guesses) };
            certain *= probability(&self.logits, guess);
            if is_end(guess) || certain < self.min_p {
                return Ok(guesses);
            }
            guesses.push(guess);
            if guesses.len() == n.min(room + 1) || cancel.is_cancelled() {
                return Ok(guesses);
            }
            sampler.accept(guess);
            self.session.feed(&[self.known(guess)])?;
        }
    }

    /// Takes back what is not the text's.
    fn agree(&mut self, text: &[u32]) {
        let held = &self.session.tokens()[self.agreed..];
        let wanted = text[self.agreed..].iter().map(|token| self.known(*token));
        self.agreed += held.iter().zip(wanted).take_while(|(a, b)| *a == b).count();
        self.session.truncate(self.agreed);
    }

    /// The token, if the draft model has it.
    fn known(&self, token: u32) -> u32 {
        if (token as usize) < self.session.model().n_vocab() { token } else { self.stand_in }
    }

    /// Brings the last logits to the length of the large model's vocabulary, which may be padded in another way.
    fn fit_logits(&mut self) {
        let logits = self.session.last_logits();
        self.logits.clear();
        self.logits.extend_from_slice(&logits[..logits.len().min(self.n_vocab)]);
        self.logits.resize(self.n_vocab, f32::NEG_INFINITY);
    }
}

/// The probability of a token at temperature 1.
fn probability(logits: &[f32], token: u32) -> f32 {
    let own = logits[token as usize];
    // A logit that is 20 less adds 2e-9 of the token's own weight: no sum over a vocabulary feels it.
    let others = logits.iter().filter(|logit| **logit > own - 20.0);
    1.0 / others.map(|logit| libm::expf(logit - own)).sum::<f32>()
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
/// The type of an entry without a use, which may have any text.
const UNUSED: i32 = 5;

pub(super) fn check_vocabulary(draft: &Gguf, model: &Gguf) -> Result<(), Error> {
    let (Some(ours), Some(theirs)) = (model.metadata().strings(TOKENS)?, draft.metadata().strings(TOKENS)?)
    else {
        // A file without tokens cannot be opened as a model, which says so.
        return Ok(());
    };
    let types = [model.metadata().i32s(TYPES)?, draft.metadata().i32s(TYPES)?];
    let unused = |at| types.iter().flatten().any(|types| types.get(at) == Some(UNUSED));
    let mut pairs = ours.iter().zip(theirs.iter()).enumerate();
    match pairs.find(|(token, (ours, theirs))| ours != theirs && !unused(*token)) {
        Some((token, (model, draft))) => {
            Err(Error::DraftVocabulary { token, draft: draft.to_owned(), model: model.to_owned() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_a_softmax() {
        let logits = [1.0f32, 2.0, f32::NEG_INFINITY, 0.5, -30.0];
        let sum: f32 = logits.iter().map(|l| l.exp()).sum();
        for (token, logit) in logits.iter().enumerate().filter(|(i, _)| ![2, 4].contains(i)) {
            assert!((probability(&logits, token as u32) - logit.exp() / sum).abs() < 1e-6);
        }
    }
}
