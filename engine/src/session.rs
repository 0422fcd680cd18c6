//! A sequence of tokens and its place in the KV cache.

use llamay_plan::{Batch, BatchToken, ExecError};

use crate::cache::SessionCache;
use crate::model::State;
use crate::speculate::Speculator;
use crate::{Cancel, Error, Model};

/// Which tokens of a [`Feed`] give logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: the tokens only enter the cache.
    None,
    /// The last one.
    Last,
    /// Every one.
    All,
}

/// One conversation with a model: the tokens fed so far, with their keys and values.
///
/// Layers with an attention window keep only what a next token can see, and [`llamay_plan::KV_ROLLBACK`] positions before
/// that. A session that is truncated further back computes its tokens again before it takes the next ones; that costs
/// time, and changes no bit of what follows. A [fork](Session::fork) made at the place to return to avoids it.
///
/// Dropping it frees its part of the cache.
pub struct Session {
    model: Model,
    tokens: Vec<u32>,
    /// Holds the first tokens: all of them, but for what is to be computed again.
    cache: SessionCache,
    /// Rows of the last tokens: what is left of those that the last forward call was asked for.
    logits: Vec<f32>,
    speculator: Option<Speculator>,
}

/// New tokens for one session, within a batch of many.
pub struct Feed<'a> {
    /// The session that grows.
    pub session: &'a mut Session,
    /// Its new tokens.
    pub tokens: &'a [u32],
    /// Which of them give logits.
    pub logits: Logits,
}

impl Session {
    pub(crate) fn new(model: &Model) -> Session {
        let cache = SessionCache::new(model.inner.n_kv_groups, model.state().epoch);
        Session { model: model.clone(), tokens: Vec::new(), cache, logits: Vec::new(), speculator: None }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens so far, which is the next token's position.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of tokens, out of [`Session::len`], that were computed and need not be again.
    pub fn n_computed(&self) -> usize {
        self.cache.len()
    }

    /// Bytes of the cache that the session holds, those included that it shares with forks.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes(self.model.inner.kv, &self.model.state().pages)
    }

    /// Logits of the last forward call, row after row of `n_vocab`; the last row belongs to the last token.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Logits behind the last token, `[n_vocab]`; empty before the first call that asked for them.
    pub fn last_logits(&self) -> &[f32] {
        &self.logits[self.logits.len().saturating_sub(self.model.n_vocab())..]
    }

    /// Appends tokens, in as many forward calls as the batch size needs, and keeps the logits behind the last one.
    ///
    /// # Errors
    /// A token that is not in the vocabulary, a full context, a failed step; the session is then as before.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.feed_with(tokens, Logits::Last, &Cancel::new(), &mut |_| {}).map(drop)
    }

    /// As [`Session::feed`], with a choice of logits; `progress` hears how many of the tokens are in.
    ///
    /// With [`Logits::All`] the rows of all calls are kept, in order. Returns how many tokens went in, which is fewer
    /// than all only when cancelled.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_with(
        &mut self,
        tokens: &[u32],
        logits: Logits,
        cancel: &Cancel,
        progress: &mut dyn FnMut(usize),
    ) -> Result<usize, Error> {
        let model = self.model.clone();
        self.check(tokens)?;
        if !tokens.is_empty() && !self.catch_up(cancel)? {
            return Ok(0);
        }
        let before = self.len();
        // One call alone leaves the logits as they are when it fails; of several, the first replaces them.
        let several = tokens.len() > model.inner.batch;
        let logits_before = if several { std::mem::take(&mut self.logits) } else { Vec::new() };
        let mut rows = Vec::new();
        let mut done = 0;
        for chunk in tokens.chunks(model.inner.batch) {
            if cancel.is_cancelled() {
                break;
            }
            let last = done + chunk.len() == tokens.len();
            let want = if logits == Logits::Last && !last { Logits::None } else { logits };
            if let Err(e) = model.forward(&mut [Feed { session: self, tokens: chunk, logits: want }]) {
                self.truncate(before);
                if several {
                    self.logits = logits_before;
                }
                return Err(e);
            }
            if want == Logits::All {
                rows.append(&mut self.logits);
            }
            done += chunk.len();
            progress(done);
        }
        if done == 0 && several {
            self.logits = logits_before;
        } else if logits == Logits::All {
            self.logits = rows;
        }
        Ok(done)
    }

    /// Forgets all tokens from position `n` on, and their logits.
    ///
    /// If layers with a window have left behind what the next token will see, the cache is given back, and the next feed
    /// computes the kept tokens again.
    pub fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        let taken = (self.len() - n).saturating_mul(self.model.n_vocab());
        self.logits.truncate(self.logits.len().saturating_sub(taken));
        self.tokens.truncate(n);
        self.cache.truncate(n, &mut self.model.state().pages);
    }

    /// A second session with the same tokens, sharing the cache of the prefix: nothing is copied until one of them
    /// writes into a shared page.
    pub fn fork(&self) -> Session {
        // The lock has to be free again for a draft model that is the same one.
        let cache = self.cache.share(&mut self.model.state().pages);
        Session {
            model: self.model.clone(),
            tokens: self.tokens.clone(),
            cache,
            logits: self.logits.clone(),
            speculator: self.speculator.as_ref().map(Speculator::fork),
        }
    }

    /// Lets [`Session::generate`] guess tokens ahead, or with `None` no more. What is generated stays the same.
    ///
    /// ```no_run
    /// # use llamay_engine::{Cancel, DraftOptions, GenerateOptions, Model, Options, Speculator};
    /// # let model = Model::open("model.gguf", &Options::default(), &|_, _| {})?;
    /// let mut session = model.session();
    /// session.set_speculator(Some(Speculator::lookup(&DraftOptions::default())?));
    /// let done = session.generate(&[1, 2, 3], &GenerateOptions::default(), &Cancel::new(), &mut |_| {})?;
    /// eprintln!("{:?}", done.stats.drafts);
    /// # Ok::<(), llamay_engine::Error>(())
    /// ```
    pub fn set_speculator(&mut self, speculator: Option<Speculator>) {
        self.speculator = speculator;
    }

    /// The tokens, and who guesses the next ones.
    pub(crate) fn parts(&mut self) -> (&[u32], Option<&mut Speculator>) {
        (&self.tokens, self.speculator.as_mut())
    }

    /// An error if the tokens cannot be appended.
    fn check(&self, tokens: &[u32]) -> Result<(), Error> {
        let n_vocab = self.model.n_vocab();
        if let Some(token) = tokens.iter().copied().find(|t| *t as usize >= n_vocab) {
            return Err(Error::Token { token, n_vocab });
        }
        let (needed, limit) = (self.len() + tokens.len(), self.model.context());
        if needed > limit {
            return Err(Error::ContextFull { needed, limit });
        }
        Ok(())
    }

    /// Computes the tokens that are not in the cache, as after a truncation beyond what windows keep. False if cancelled.
    fn catch_up(&mut self, cancel: &Cancel) -> Result<bool, Error> {
        let model = self.model.clone();
        self.cache.follow(&mut model.state());
        while self.cache.len() < self.len() {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let rest = &self.tokens[self.cache.len()..];
            let tokens = rest[..rest.len().min(model.inner.batch)].to_vec();
            let mut feeds = [Feed { session: self, tokens: &tokens, logits: Logits::None }];
            let done = step(&mut model.state(), &mut feeds);
            if let Err(e) = done {
                model.survive(e)?;
                self.cache.follow(&mut model.state());
            }
        }
        Ok(true)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cache.clear(&mut self.model.state().pages);
    }
}

/// Computes the feeds' tokens at the ends of their sessions' caches; the logits are in `state`. Lists of tokens are not
/// touched.
///
/// # Errors
/// If there is no memory or a step fails; the caches are then as before.
fn step(state: &mut State, feeds: &mut [Feed<'_>]) -> Result<(), ExecError> {
    let result = try_step(state, feeds);
    for feed in feeds {
        match result {
            Ok(()) => feed.session.cache.keep(feed.tokens.len(), &mut state.pages),
            Err(_) => feed.session.cache.drop_room(&mut state.pages),
        }
    }
    result
}

fn try_step(state: &mut State, feeds: &mut [Feed<'_>]) -> Result<(), ExecError> {
    let mut tokens = Vec::with_capacity(feeds.iter().map(|f| f.tokens.len()).sum());
    for (sequence, feed) in feeds.iter_mut().enumerate() {
        let start = feed.session.cache.len();
        feed.session.cache.make_room(feed.tokens.len(), state)?;
        let last = feed.tokens.len().saturating_sub(1);
        tokens.extend(feed.tokens.iter().enumerate().map(|(i, token)| BatchToken {
            token: *token,
            position: (start + i) as u32,
            sequence: sequence as u32,
            wants_logits: match feed.logits {
                Logits::None => false,
                Logits::Last => i == last,
                Logits::All => true,
            },
        }));
    }
    let tables: Vec<_> = feeds.iter().map(|f| f.session.cache.tables()).collect();
    state.executor.forward(Batch { tokens: &tokens, tables: &tables }, &mut state.logits)
}

impl Model {
    /// Goes on on the CPU where a device was lost; any other error comes back.
    fn survive(&self, error: ExecError) -> Result<(), Error> {
        if !matches!(error, ExecError::DeviceLost { .. }) {
            return Err(error.into());
        }
        let text = error.to_string();
        if self.state().fall_to_cpu().is_err() {
            return Err(error.into());
        }
        self.notice(format!("{text}; going on on the CPU, which computes the tokens so far again"));
        Ok(())
    }

    /// Appends tokens to several sessions in one forward call; each session's logits are those that it would have got
    /// alone.
    ///
    /// # Errors
    /// As [`Session::feed`]; every session is then as before.
    pub fn forward(&self, feeds: &mut [Feed<'_>]) -> Result<(), Error> {
        for feed in feeds.iter() {
            if !std::sync::Arc::ptr_eq(&feed.session.model.inner, &self.inner) {
                return Err(Error::Unfit("a session of another model cannot join the batch".to_owned()));
            }
            feed.session.check(feed.tokens)?;
        }
        if feeds.iter().all(|f| f.tokens.is_empty()) {
            return Ok(());
        }
        let state = loop {
            for feed in feeds.iter_mut().filter(|f| !f.tokens.is_empty()) {
                feed.session.catch_up(&Cancel::new())?;
            }
            let mut state = self.state();
            match step(&mut state, feeds) {
                Ok(()) => break state,
                Err(e) => {
                    drop(state);
                    self.survive(e)?;
                }
            }
        };
        let mut rows = state.logits.as_slice();
        for feed in feeds {
            feed.session.tokens.extend_from_slice(feed.tokens);
            let n = match feed.logits {
                Logits::None => 0,
                Logits::Last => usize::from(!feed.tokens.is_empty()),
                Logits::All => feed.tokens.len(),
            };
            let (own, rest) = rows.split_at(n * self.n_vocab());
            feed.session.logits.clear();
            feed.session.logits.extend_from_slice(own);
            rows = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use llamay_formats::Format;
    use llamay_gguf::Gguf;
    use llamay_model::shapes::{N_VOCAB, Shape};

    use super::*;
    use crate::Options;
    use crate::pages::Pages;
    use crate::testing::Wrapped;

    /// A model with windows, and the number of calls after which its device fails.
    fn failing_model() -> (Model, Arc<AtomicUsize>) {
        let shape = Shape::named("gemma3").expect("a generated model");
        let gguf = Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap();
        let options =
            Options { threads: Some(1), batch: Some(256), context: Some(4096), ..Options::default() };
        let model = Model::from_gguf(gguf, &options, &|_, _| {}).unwrap();
        let calls_left = Arc::new(AtomicUsize::new(usize::MAX));
        let left = Arc::clone(&calls_left);
        Wrapped::around(&mut model.state().executor, move |_| {
            let error = ExecError::OutOfMemory { what: "a test", bytes: 1 };
            let n = left.load(Ordering::Relaxed).checked_sub(1).ok_or(error)?;
            left.store(n, Ordering::Relaxed);
            Ok(())
        });
        (model, calls_left)
    }

    fn tokens(n: usize) -> Vec<u32> {
        (0..n).map(|i| (i * 61 % N_VOCAB) as u32).collect()
    }

    /// Lets each call to the device fail in turn while a session takes tokens; each time it has to be as before, and to
    /// take them after that to the bits that a fresh session gives.
    fn fails_without_a_trace(make: impl Fn(&Model) -> Session, n_calls: usize) {
        let (model, calls_left) = failing_model();
        let new = tokens(300);
        let mut fresh = model.session();
        fresh.feed(&[make(&model).tokens(), &new].concat()).unwrap();
        let first = make(&model);
        for n in 0.. {
            let mut session = first.fork();
            calls_left.store(n, Ordering::Relaxed);
            let result = session.feed(&new);
            calls_left.store(usize::MAX, Ordering::Relaxed);
            if result.is_ok() {
                assert_eq!(n, n_calls);
                break;
            }
            assert_eq!((session.tokens(), session.logits()), (first.tokens(), first.logits()), "{n}");
            session.feed(&new).unwrap();
            assert!(session.last_logits() == fresh.last_logits(), "{n}");
        }
        drop((first, fresh));
        assert!(model.state().pages.iter().all(Pages::all_free));
    }

    #[test]
    fn a_failed_feed_leaves_the_session_as_before() {
        let shared = |model: &Model| {
            let mut session = model.session();
            session.feed(&tokens(600)).unwrap();
            session
        };
        // In each of two batches both groups reserve, in the first for copies too.
        fails_without_a_trace(shared, 2 * 3 + 2);
    }

    #[test]
    fn a_failure_while_tokens_are_computed_again_leaves_the_session_as_before() {
        let truncated = |model: &Model| {
            let mut session = model.session();
            session.feed(&tokens(600)).unwrap();
            session.truncate(60);
            assert_eq!(session.n_computed(), 0);
            session
        };
        fails_without_a_trace(truncated, 3 * 3);
    }

    /// A device in use, which the CPU can replace.
    fn device_model() -> Model {
        let shape = Shape::named("gemma3").expect("a generated model");
        let gguf = Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap();
        let device = Arc::new(llamay_cpu::CpuBackend::new(None, 1));
        let backend = Some(crate::CustomBackend(device));
        let options = Options { threads: Some(1), batch: Some(64), backend, ..Options::default() };
        Model::from_gguf(gguf, &options, &|_, _| {}).unwrap()
    }

    #[test]
    fn a_lost_device_costs_time_and_no_session() {
        let prompt = tokens(150);
        let undisturbed = device_model();
        let mut reference = undisturbed.session();
        reference.feed(&prompt).unwrap();
        for n_calls in 0..4 {
            let model = device_model();
            let (mut session, mut other) = (model.session(), model.session());
            other.feed(&prompt[..40]).unwrap();
            let mut fork = other.fork();
            let mut left = n_calls;
            Wrapped::around(&mut model.state().executor, move |call| {
                if matches!(call, crate::testing::Call::Forward(_)) && left == 0 {
                    return Err(ExecError::DeviceLost {
                        device: "a test".to_owned(),
                        why: "gone".to_owned(),
                    });
                }
                left -= usize::from(matches!(call, crate::testing::Call::Forward(_)));
                Ok(())
            });
            session.feed(&prompt).unwrap();
            assert_eq!(session.last_logits(), reference.last_logits(), "{n_calls}");
            for other in [&mut other, &mut fork] {
                other.feed(&prompt[40..]).unwrap();
                assert_eq!(other.last_logits(), reference.last_logits(), "{n_calls}");
            }
            let notices = model.take_notices();
            assert!(notices.len() == 1 && notices[0].contains("a test is lost: gone"), "{notices:?}");
            drop((session, other, fork));
            assert!(model.state().pages.iter().all(Pages::all_free));
        }
    }
}
