//! The knobs of the sampling chain.

use std::fmt;

/// How the next token is chosen. The defaults are those that users of GGUF models are used to.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits before the draw; 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps this many tokens with the largest logits; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest most likely tokens that have at least this probability together; 1 keeps all.
    /// (Holtzman et al. 2019, nucleus sampling.)
    pub top_p: f32,
    /// Drops tokens less likely than this fraction of the most likely one; 0 keeps all. (Nguyen et al. 2024.)
    pub min_p: f32,
    /// Keeps the tokens whose information is closest to the entropy until they have more than this probability
    /// together; 1 keeps all. (Meister et al. 2022, locally typical sampling.)
    pub typical_p: f32,
    /// Divides the positive and multiplies the other logits of tokens in the history; 1 changes nothing.
    /// (Keskar et al. 2019, CTRL.)
    pub repeat_penalty: f32,
    /// How many of the last accepted tokens the three penalties look at; 0 turns them off, [`usize::MAX`] is all.
    pub repeat_last_n: usize,
    /// Subtracted from the logits of tokens in the history, once.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens in the history, once for each time they occur.
    pub frequency_penalty: f32,
    /// Added to the logits of single tokens; negative infinity bans a token. A token's several biases add up.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where the random numbers start; without, the sampler picks one.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    /// The most likely token always: temperature 0.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every parameter against its legal range.
    ///
    /// # Errors
    /// Names the first parameter outside its range.
    pub fn validate(&self) -> Result<(), ParamError> {
        let finite = |value: f32| value.is_finite();
        let fraction = |value: f32| (0.0..=1.0).contains(&value);
        let checks = [
            (
                "temperature",
                self.temperature,
                finite(self.temperature) && self.temperature >= 0.0,
                "0 or more",
            ),
            ("top_p", self.top_p, fraction(self.top_p), "from 0 to 1"),
            ("min_p", self.min_p, fraction(self.min_p), "from 0 to 1"),
            ("typical_p", self.typical_p, fraction(self.typical_p), "from 0 to 1"),
            (
                "repeat_penalty",
                self.repeat_penalty,
                finite(self.repeat_penalty) && self.repeat_penalty > 0.0,
                "more than 0",
            ),
            ("presence_penalty", self.presence_penalty, finite(self.presence_penalty), "a finite number"),
            ("frequency_penalty", self.frequency_penalty, finite(self.frequency_penalty), "a finite number"),
        ];
        for (parameter, value, legal, range) in checks {
            if !legal {
                return Err(ParamError::new(parameter, value, range));
            }
        }
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan() || *bias == f32::INFINITY) {
            Some((token, bias)) => {
                Err(ParamError::new(format!("logit_bias of token {token}"), bias, "a finite number or -inf"))
            }
            None => Ok(()),
        }
    }
}

/// A sampling parameter outside its legal range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{parameter} is {value}, but it must be {range}")]
pub struct ParamError {
    parameter: String,
    value: String,
    range: String,
}

impl ParamError {
    pub(super) fn new(
        parameter: impl Into<String>,
        value: impl fmt::Display,
        range: impl Into<String>,
    ) -> Self {
        Self { parameter: parameter.into(), value: value.to_string(), range: range.into() }
    }

    /// The name of the parameter.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }
}
