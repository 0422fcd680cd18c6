//! Choosing the next token from the logits of a forward pass.
//!
//! The chain has the parts and the order that users of GGUF models know: logit bias and penalties, then top-k,
//! locally typical, top-p and min-p, then temperature, then the draw. Everything after the `f32` logits is computed in
//! `f64` with one implementation of `exp` and `ln` for all platforms, so a seed gives the same tokens everywhere.

mod candidates;
mod params;
mod penalties;
mod random;

pub use params::{ParamError, SamplingParams};

use candidates::Candidates;
use penalties::Penalties;
use random::SplitMix64;

/// Why no token could be chosen.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// A logit, after bias and penalties, is NaN or positive infinity. Negative infinity is legal: a banned token.
    #[error("the logit of token {token} is {logit}, not a finite number")]
    BadLogit {
        /// The first such token.
        token: u32,
        /// Its logit.
        logit: f32,
    },
    /// Every logit is negative infinity.
    #[error("every token is banned (all logits are -inf), so none can be chosen")]
    AllBanned,
    /// The number of logits is not the vocabulary's size.
    #[error("{got} logits were given, but the vocabulary has {n_vocab} tokens")]
    WrongLength {
        /// How many logits there were.
        got: usize,
        /// The vocabulary's size.
        n_vocab: usize,
    },
}

/// Chooses tokens for one sequence. A clone continues with the same draws as its original.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    n_vocab: usize,
    seed: u64,
    random: SplitMix64,
    penalties: Penalties,
    /// The logits after bias and penalties; unused when there are none of either.
    adjusted: Vec<f32>,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens. Without a seed in `params` it picks one, see [`Self::seed`].
    ///
    /// # Errors
    /// What [`SamplingParams::validate`] objects to, an empty vocabulary, and a bias for a token outside it.
    pub fn new(params: SamplingParams, n_vocab: usize) -> Result<Self, ParamError> {
        params.validate()?;
        if n_vocab == 0 || u32::try_from(n_vocab).is_err() {
            return Err(ParamError::new("n_vocab", n_vocab, "from 1 to 4294967295"));
        }
        if let Some((token, _)) = params.logit_bias.iter().find(|(token, _)| *token as usize >= n_vocab) {
            return Err(ParamError::new("logit_bias token", token, format!("from 0 to {}", n_vocab - 1)));
        }
        let seed = params.seed.unwrap_or_else(random::arbitrary_seed);
        Ok(Self {
            penalties: Penalties::new(&params),
            params,
            n_vocab,
            seed,
            random: SplitMix64::new(seed),
            adjusted: Vec::new(),
            candidates: Candidates::default(),
        })
    }

    /// The parameters that this sampler was made with.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The seed in use, be it given or picked: with it the same tokens come out again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The token to come next. `logits` has one entry for each token of the vocabulary.
    ///
    /// At temperature 0 that is the token with the largest logit after bias and penalties, the lowest id among equals,
    /// and the filters play no part. The token is not added to the history; see [`Self::accept`].
    ///
    /// # Errors
    /// See [`SampleError`]. A failed call draws no random number.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SampleError> {
        if logits.len() != self.n_vocab {
            return Err(SampleError::WrongLength { got: logits.len(), n_vocab: self.n_vocab });
        }
        let logits = if self.params.logit_bias.is_empty() && self.penalties.is_empty() {
            logits
        } else {
            self.adjusted.clear();
            self.adjusted.extend_from_slice(logits);
            for &(token, bias) in &self.params.logit_bias {
                self.adjusted[token as usize] += bias;
            }
            self.penalties.apply(&mut self.adjusted);
            &self.adjusted
        };
        let params = &self.params;
        let best = argmax(logits)?;
        if params.temperature == 0.0 {
            return Ok(best);
        }
        let candidates = &mut self.candidates;
        candidates.collect(logits, params.top_k, logits[best as usize]);
        candidates.typical(f64::from(params.typical_p));
        candidates.top_p(f64::from(params.top_p));
        candidates.min_p(f64::from(params.min_p));
        Ok(candidates.draw(f64::from(params.temperature), self.random.next_f64()))
    }

    /// Adds a token of the sequence to the history that the penalties look at: the prompt's tokens as well as the
    /// chosen ones.
    pub fn accept(&mut self, token: u32) {
        self.penalties.accept(token);
    }

    /// Forgets the history and starts the draws over from the same seed.
    pub fn reset(&mut self) {
        self.penalties.clear();
        self.random = SplitMix64::new(self.seed);
    }
}

/// The token with the largest logit, the lowest id among equals, and the check that all logits are legal.
fn argmax(logits: &[f32]) -> Result<u32, SampleError> {
    // Independent lanes, for the compiler to put into vector registers.
    const LANES: usize = 16;
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut legal = [true; LANES];
    let mut take = |lane: usize, logit: f32| {
        best[lane] = if logit > best[lane] { logit } else { best[lane] };
        // False for NaN as well.
        legal[lane] &= logit < f32::INFINITY;
    };
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        (0..LANES).for_each(|lane| take(lane, chunk[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &logit)| take(lane, logit));
    if legal.contains(&false)
        && let Some(token) = logits.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY)
    {
        return Err(SampleError::BadLogit { token: token as u32, logit: logits[token] });
    }
    let best = best.into_iter().fold(f32::NEG_INFINITY, f32::max);
    if best == f32::NEG_INFINITY {
        return Err(SampleError::AllBanned);
    }
    logits.iter().position(|&logit| logit == best).map(|token| token as u32).ok_or(SampleError::AllBanned)
}
