//! Text from a session, token by token.

use std::time::{Duration, Instant};

use crate::sampling::{Sampler, SamplingParams};
use crate::speculate::Ahead;
use crate::{Cancel, DraftStats, Error, Logits, Session};

/// What a generation is asked for.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None` until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Texts that end the generation; they are not part of it.
    pub stop: Vec<String>,
    /// Goes on past the model's end-of-generation tokens: they cannot be chosen.
    pub ignore_eos: bool,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// A stop text came up.
    Stop(String),
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    ContextFull,
    /// It was cancelled.
    Cancelled,
}

/// A finished generation.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The text, without what ended it.
    pub text: String,
    /// The tokens, with the one that ended it.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Times and counts.
    pub stats: Stats,
}

/// Times and counts of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt that were computed; what the session held already does not count.
    pub prompt_tokens: usize,
    /// Time for them.
    pub prompt_time: Duration,
    /// Time from the call to the first token.
    pub first_token: Duration,
    /// Tokens generated.
    pub tokens: usize,
    /// Time for all of them but the first, which the prompt's time holds.
    pub token_time: Duration,
    /// What became of guesses; `None` for a session without a [speculator](Session::set_speculator).
    pub drafts: Option<DraftStats>,
}

impl Stats {
    /// Prompt tokens a second.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt_time)
    }

    /// Generated tokens a second.
    pub fn token_rate(&self) -> f64 {
        rate(self.tokens.saturating_sub(1), self.token_time)
    }
}

fn rate(n: usize, time: Duration) -> f64 {
    if n == 0 || time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

/// Holds text back while it may be the beginning of a stop text.
struct StopFilter<'a> {
    stop: &'a [String],
    held: String,
}

impl StopFilter<'_> {
    /// Takes text in; gives what may be shown, and the stop text that came up.
    fn push(&mut self, text: &str) -> (String, Option<String>) {
        self.held.push_str(text);
        let found = self.stop.iter().filter_map(|s| self.held.find(s.as_str()).map(|at| (at, s))).min();
        if let Some((at, stop)) = found {
            let stop = stop.clone();
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let keep = (0..self.held.len())
            .filter(|i| self.held.is_char_boundary(*i))
            .find(|i| self.stop.iter().any(|s| s.starts_with(&self.held[*i..])))
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, rest), None)
    }
}

impl Session {
    /// Feeds the prompt and generates behind it; `on_text` gets whole characters as they come.
    ///
    /// The session then holds the prompt and every generated token but the last, which nothing was computed for.
    ///
    /// # Errors
    /// An empty prompt in an empty session, a prompt that does not fit, a failed step, unusable sampling parameters.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        options: &GenerateOptions,
        cancel: &Cancel,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Generation, Error> {
        let begin = Instant::now();
        let model = self.model().clone();
        let tokenizer = model.tokenizer();
        let mut params = options.sampling.clone();
        if options.ignore_eos {
            params.logit_bias.extend(tokenizer.eog().iter().map(|id| (*id, f32::NEG_INFINITY)));
        }
        let mut sampler = Sampler::new(params, model.n_vocab())?;
        if options.stop.iter().any(String::is_empty) {
            return Err(Error::Unfit("a stop text must not be empty".to_owned()));
        }
        if prompt.is_empty() && self.last_logits().is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let held = self.n_computed();
        let fed =
            if prompt.is_empty() { 0 } else { self.feed_with(prompt, Logits::Last, cancel, &mut |_| {})? };
        let mut stats = Stats {
            prompt_tokens: self.n_computed() - held,
            prompt_time: begin.elapsed(),
            ..Stats::default()
        };
        self.tokens().iter().for_each(|t| sampler.accept(*t));

        let mut stream = tokenizer.stream().continuing();
        let mut filter = StopFilter { stop: &options.stop, held: String::new() };
        let (mut text, mut tokens) = (String::new(), Vec::new());
        let mut show = |part: String, text: &mut String| {
            if !part.is_empty() {
                on_text(&part);
                text.push_str(&part);
            }
        };
        let mut first = None;
        let mut ahead = Ahead::new(self);
        let finish = loop {
            if cancel.is_cancelled() || fed < prompt.len() {
                break Finish::Cancelled;
            }
            if options.max_tokens.is_some_and(|max| tokens.len() >= max) {
                break Finish::Length;
            }
            let token = sampler.sample(ahead.logits())?;
            sampler.accept(token);
            tokens.push(token);
            first.get_or_insert_with(Instant::now);
            if tokenizer.is_eog(token) {
                break Finish::End;
            }
            let (part, stop) = filter.push(&stream.push(token));
            show(part, &mut text);
            if let Some(stop) = stop {
                break Finish::Stop(stop);
            }
            let left = options.max_tokens.unwrap_or(usize::MAX).saturating_sub(tokens.len());
            if left == 0 {
                break Finish::Length;
            }
            if ahead.len() >= model.context() {
                break Finish::ContextFull;
            }
            // The last token is drawn behind the last guess.
            ahead.push(token, &sampler, left - 1, cancel)?;
        };
        stats.drafts = ahead.stats();
        drop(ahead);
        if !matches!(finish, Finish::Stop(_)) {
            let (part, _) = filter.push(&stream.flush());
            show(part, &mut text);
            show(std::mem::take(&mut filter.held), &mut text);
        }
        stats.tokens = tokens.len();
        if let Some(first) = first {
            stats.first_token = first - begin;
            stats.token_time = first.elapsed();
        }
        Ok(Generation { text, tokens, finish, stats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of the filter for pieces of text, and the stop text.
    fn filter(stop: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let stop: Vec<String> = stop.iter().map(|s| (*s).to_owned()).collect();
        let mut filter = StopFilter { stop: &stop, held: String::new() };
        let mut shown = Vec::new();
        for piece in pieces {
            let (text, stop) = filter.push(piece);
            shown.push(text);
            if stop.is_some() {
                return (shown, stop);
            }
        }
        shown.push(filter.held);
        (shown, None)
    }

    #[test]
    fn text_that_may_begin_a_stop_text_is_held_back() {
        assert_eq!(filter(&[], &["a", "b"]), (vec!["a".into(), "b".into(), String::new()], None));
        let (shown, stop) = filter(&["END"], &["xE", "N", "Dy"]);
        assert_eq!((shown.concat().as_str(), stop.as_deref()), ("x", Some("END")));
        let (shown, stop) = filter(&["END"], &["xE", "Nx"]);
        assert_eq!((shown.concat().as_str(), stop), ("xENx", None));
        assert_eq!(shown[0], "x", "what cannot begin a stop text is shown at once");
    }

    #[test]
    fn the_first_stop_text_in_the_text_wins() {
        let (shown, stop) = filter(&["b", "ab"], &["xxab"]);
        assert_eq!((shown.concat().as_str(), stop.as_deref()), ("xx", Some("ab")));
        let (shown, _) = filter(&["ß!"], &["grüß", "e"]);
        assert_eq!(shown.concat(), "grüße");
    }
}
