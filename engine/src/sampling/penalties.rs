//! Penalties on tokens that were seen recently.

use std::collections::{HashMap, VecDeque};

use super::SamplingParams;

/// The recent tokens of a sequence and what they cost.
#[derive(Debug, Clone)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    /// How many tokens are looked at; 0 when the penalties change nothing, so that no history is kept.
    window: usize,
    recent: VecDeque<u32>,
    /// How often each token occurs in `recent`; no entry is 0.
    counts: HashMap<u32, u32>,
}

impl Penalties {
    pub(super) fn new(params: &SamplingParams) -> Self {
        let neutral =
            params.repeat_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
        Self {
            repeat: params.repeat_penalty,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
            window: if neutral { 0 } else { params.repeat_last_n },
            recent: VecDeque::new(),
            counts: HashMap::new(),
        }
    }

    /// Whether [`Self::apply`] would change nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn accept(&mut self, token: u32) {
        if self.window == 0 {
            return;
        }
        if self.recent.len() == self.window
            && let Some(oldest) = self.recent.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
    }

    pub(super) fn clear(&mut self) {
        self.recent.clear();
        self.counts.clear();
    }

    /// Lowers the logits of the recent tokens. Each token is changed once, so the order does not matter.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        for (&token, &count) in &self.counts {
            if let Some(logit) = logits.get_mut(token as usize) {
                // Dividing a negative logit would make the token more likely.
                *logit = if *logit > 0.0 { *logit / self.repeat } else { *logit * self.repeat };
                *logit -= count as f32 * self.frequency + self.presence;
            }
        }
    }
}
