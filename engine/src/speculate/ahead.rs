//! A session that is ahead of its text.

use crate::sampling::Sampler;
use crate::speculate::DraftStats;
use crate::{Cancel, Error, Feed, Logits, Session};

/// A session during a generation. It may have computed more tokens than the text has: guesses that are still standing,
/// whose logits are there when the text reaches them. On drop it takes them back.
///
/// To whoever generates, it looks as a session that computes one token after the other.
pub(crate) struct Ahead<'a> {
    session: &'a mut Session,
    /// Tokens of the text; the session holds these and then the guesses.
    len: usize,
    /// Guesses of the last forward call, and how many of them became text.
    guessed: usize,
    accepted: usize,
}

impl<'a> Ahead<'a> {
    /// Begins behind the session's tokens.
    pub(crate) fn new(session: &'a mut Session) -> Ahead<'a> {
        let context = session.model().context();
        let (text, speculator) = session.parts();
        if let Some(speculator) = speculator {
            speculator.begin(text, context);
        }
        Ahead { len: session.len(), session, guessed: 0, accepted: 0 }
    }

    /// Tokens of the text.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Logits behind the text, `[n_vocab]`.
    pub(crate) fn logits(&self) -> &[f32] {
        let standing = self.session.len() - self.len;
        let n_vocab = self.session.model().n_vocab();
        self.session.logits().rchunks(n_vocab).nth(standing).unwrap_or_default()
    }

    /// What became of the guesses so far; `None` without a speculator.
    pub(crate) fn stats(&mut self) -> Option<DraftStats> {
        self.session.parts().1.map(|speculator| speculator.stats)
    }

    /// Appends the next token of the text. If it was not guessed, it is computed, with up to `room` guesses behind it.
    ///
    /// `sampler` has accepted the token; nothing else of it is used than to guess.
    ///
    /// # Errors
    /// A failed step; the text is then as before.
    pub(crate) fn push(
        &mut self,
        token: u32,
        sampler: &Sampler,
        room: usize,
        cancel: &Cancel,
    ) -> Result<(), Error> {
        if self.session.tokens().get(self.len) == Some(&token) {
            self.len += 1;
            self.accepted += 1;
            if let (_, Some(speculator)) = self.session.parts() {
                speculator.stats.accepted += 1;
            }
            return Ok(());
        }
        self.settle();
        let mut new = vec![token];
        new.extend(self.guess(token, sampler, room, cancel)?);
        let mut fed = self.feed(&new);
        if fed.is_err() && new.len() > 1 {
            // It may have been a guess that failed, and without guesses nobody would know.
            new.truncate(1);
            fed = self.feed(&new);
        }
        fed?;
        self.len += 1;
        (self.guessed, self.accepted) = (new.len() - 1, 0);
        if let (_, Some(speculator)) = self.session.parts() {
            speculator.count(self.guessed);
        }
        Ok(())
    }

    fn guess(
        &mut self,
        token: u32,
        sampler: &Sampler,
        room: usize,
        cancel: &Cancel,
    ) -> Result<Vec<u32>, Error> {
        let model = self.session.model().clone();
        let room = room.min(model.context().saturating_sub(self.len + 1)).min(model.inner.batch - 1);
        match self.session.parts() {
            (text, Some(speculator)) => {
                let is_end = |token| model.tokenizer().is_eog(token);
                speculator.guess(text, token, sampler, room, cancel, is_end)
            }
            (_, None) => Ok(Vec::new()),
        }
    }

    /// Computes no more tokens than a batch has, with logits for each; after an error the session is as before.
    fn feed(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let model = self.session.model().clone();
        model.forward(&mut [Feed { session: self.session, tokens, logits: Logits::All }])
    }

    /// Takes back the guesses that are not part of the text, and learns from how the draft went.
    fn settle(&mut self) {
        self.session.truncate(self.len);
        if let (_, Some(speculator)) = self.session.parts()
            && self.guessed > 0
        {
            speculator.length.learn(self.guessed, self.accepted);
        }
        self.guessed = 0;
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.session.truncate(self.len);
    }
}

#[cfg(test)]
mod tests {
    use llamay_formats::Format;
    use llamay_gguf::Gguf;
    use llamay_model::shapes::Shape;
    use llamay_plan::ExecError;

    use crate::sampling::SamplingParams;
    use crate::testing::{Call, Wrapped};
    use crate::{Cancel, DraftOptions, GenerateOptions, Model, Options, Speculator};

    #[test]
    fn a_guess_that_cannot_be_computed_is_no_error() {
        let shape = Shape::named("llama-gqa").expect("a generated model");
        let load = || {
            let gguf = Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap();
            Model::from_gguf(gguf, &Options { threads: Some(1), ..Options::default() }, &|_, _| {}).unwrap()
        };
        let (whole, failing) = (load(), load());
        // A device that fails when it gets a few tokens at once, as where one of them has a bad weight.
        Wrapped::around(&mut failing.state().executor, |call| match call {
            Call::Forward(2..10) => Err(ExecError::OutOfMemory { what: "a test", bytes: 1 }),
            Call::Forward(_) | Call::Other => Ok(()),
        });
        let options = GenerateOptions {
            max_tokens: Some(30),
            sampling: SamplingParams::greedy(),
            ignore_eos: true,
            ..GenerateOptions::default()
        };
        let prompt = [1, 2, 3].repeat(5);
        let say = |model: &Model, speculator| {
            let mut session = model.session();
            session.set_speculator(speculator);
            session.generate(&prompt, &options, &Cancel::new(), &mut |_| {}).unwrap()
        };
        let itself = Speculator::draft(&whole, &failing, &DraftOptions { min_p: 0.0, ..Default::default() });
        let guessed = say(&failing, Some(itself.unwrap()));
        assert_eq!(guessed.tokens, say(&whole, None).tokens);
        assert_eq!(guessed.stats.drafts, Some(crate::DraftStats::default()));
    }
}
