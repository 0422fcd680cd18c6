//! Speculative decoding: something quick guesses the next tokens, and the model checks all guesses in one forward call.
//!
//! Decoding reads every weight for each token, so that checking a few tokens takes hardly longer than computing one
//! (Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2023). The guesses come
//! from a small [draft model](Speculator::draft) or from [the text itself](Speculator::lookup).
//!
//! **The text is the same with and without.** A guess stands only if it is the token that the sampler draws from the
//! model's own logits, with the random number that it would have drawn anyway; and these logits are the same bits
//! whether a token is computed alone or among guesses. So speculation decides how many forward calls a text takes, and
//! nothing else, at any temperature.

mod ahead;
mod draft;
mod length;
mod lookup;

pub(crate) use ahead::Ahead;

use llamay_gguf::Gguf;
use llamay_plan::KV_ROLLBACK;

use crate::sampling::Sampler;
use crate::{Cancel, Error, Model};
use draft::DraftModel;
use length::DraftLength;
use lookup::Lookup;

/// The most guesses that [`DraftOptions::max`] may ask for. Their logits are all held at once.
pub const MAX_DRAFT: usize = 64;

// Guesses can be taken back without computing what windows have left behind.
const _: () = assert!(MAX_DRAFT <= KV_ROLLBACK);

/// How much is guessed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftOptions {
    /// Tokens guessed at once, at the most; from 1 to [`MAX_DRAFT`]. A draft begins with two, grows towards this as long
    /// as guesses are right, and shrinks when they are not.
    pub max: usize,
    /// A draft model stops before a guess where, by its own probabilities, all guesses up to there are right with less
    /// than this; from 0 to 1. A guess pays when this is more than what it costs, as a share of the model's own step.
    pub min_p: f32,
}

impl Default for DraftOptions {
    fn default() -> DraftOptions {
        DraftOptions { max: 8, min_p: 0.5 }
    }
}

impl DraftOptions {
    fn check(&self) -> Result<(), Error> {
        let DraftOptions { max, min_p } = *self;
        if !(1..=MAX_DRAFT).contains(&max) {
            return Err(Error::Unfit(format!("a draft of {max} tokens is not between 1 and {MAX_DRAFT}")));
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(Error::Unfit(format!(
                "a draft's least probability of {min_p} is not between 0 and 1"
            )));
        }
        Ok(())
    }
}

/// What became of the guesses of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftStats {
    /// Forward calls that checked guesses.
    pub drafts: usize,
    /// Tokens guessed.
    pub guessed: usize,
    /// Guesses that were right and became part of the text.
    pub accepted: usize,
}

impl DraftStats {
    /// Accepted guesses of a draft, on average.
    pub fn mean_accepted(&self) -> f64 {
        if self.drafts == 0 { 0.0 } else { self.accepted as f64 / self.drafts as f64 }
    }
}

/// Guesses tokens for one session; see [`crate::Session::set_speculator`].
pub struct Speculator {
    source: Source,
    length: DraftLength,
    stats: DraftStats,
}

/// Where guesses come from.
enum Source {
    Lookup(Lookup),
    Model(Box<DraftModel>),
}

impl Speculator {
    /// Guesses that the text goes on as it did where its last tokens occurred before: prompt look-up (Saxena 2023). It
    /// costs next to nothing, and helps where an answer copies from its prompt, as in edits of code.
    ///
    /// # Errors
    /// Options out of their ranges.
    pub fn lookup(options: &DraftOptions) -> Result<Speculator, Error> {
        Speculator::new(Source::Lookup(Lookup::default()), options)
    }

    /// Lets a smaller model of the same vocabulary guess what `model` will say. The draft model has a session of its own
    /// here, with a cache of its own; where its context is full, there are no more guesses.
    ///
    /// # Errors
    /// Another vocabulary, or options out of their ranges.
    pub fn draft(draft: &Model, model: &Model, options: &DraftOptions) -> Result<Speculator, Error> {
        Speculator::check_vocabulary(draft.gguf(), model.gguf())?;
        Speculator::new(Source::Model(Box::new(DraftModel::new(draft, model, options.min_p))), options)
    }

    /// Whether a draft model's file has the vocabulary of a model's file, up to padding at the end of the longer one; so
    /// that it can be known before either is loaded.
    ///
    /// # Errors
    /// [`Error::DraftVocabulary`] with the first token that differs.
    pub fn check_vocabulary(draft: &Gguf, model: &Gguf) -> Result<(), Error> {
        draft::check_vocabulary(draft, model)
    }

    fn new(source: Source, options: &DraftOptions) -> Result<Speculator, Error> {
        options.check()?;
        Ok(Speculator { source, length: DraftLength::new(options.max), stats: DraftStats::default() })
    }

    /// A speculator in the same state, for a session with the same tokens.
    pub(crate) fn fork(&self) -> Speculator {
        let source = match &self.source {
            Source::Lookup(lookup) => Source::Lookup(lookup.clone()),
            Source::Model(model) => Source::Model(Box::new(model.fork())),
        };
        Speculator { source, length: self.length.clone(), stats: self.stats }
    }

    /// Begins a generation behind `text`, in a session of `context` positions.
    fn begin(&mut self, text: &[u32], context: usize) {
        self.stats = DraftStats::default();
        match &mut self.source {
            Source::Lookup(lookup) => lookup.begin(context),
            Source::Model(model) => model.begin(text),
        }
    }

    /// Guesses of up to `room` tokens that come behind `text` and then `next`. Between two calls of one generation, text
    /// is only appended. `sampler` has accepted all of it.
    fn guess(
        &mut self,
        text: &[u32],
        next: u32,
        sampler: &Sampler,
        room: usize,
        cancel: &Cancel,
        is_end: impl Fn(u32) -> bool,
    ) -> Result<Vec<u32>, Error> {
        let n = self.length.next().min(room);
        let mut guesses = match &mut self.source {
            Source::Lookup(lookup) => lookup.guess(text, next, n),
            Source::Model(_) if n == 0 => Vec::new(),
            Source::Model(model) => {
                let guesses = model.guess(text, next, sampler, n, cancel, &is_end);
                let guesses = guesses.map_err(|error| Error::Draft(Box::new(error)))?;
                if guesses.is_empty() {
                    self.length.learn(0, 0);
                }
                guesses
            }
        };
        // Nothing is computed behind the token that ends a text.
        guesses.truncate(guesses.iter().position(|token| is_end(*token)).unwrap_or(n));
        Ok(guesses)
    }

    /// Counts guesses that go into a forward call.
    fn count(&mut self, guessed: usize) {
        self.stats.drafts += usize::from(guessed > 0);
        self.stats.guessed += guessed;
    }
}
