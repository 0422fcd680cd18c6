//! A sequence of tokens and its place in the KV cache.

use llamay_plan::{Batch, BatchToken, KV_PAGE, PageId};

use crate::model::State;
use crate::pages::pages_for;
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
/// Dropping it frees its part of the cache.
pub struct Session {
    model: Model,
    tokens: Vec<u32>,
    pages: Vec<PageId>,
    /// Rows of the last forward call that asked for logits.
    logits: Vec<f32>,
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
        Session { model: model.clone(), tokens: Vec::new(), pages: Vec::new(), logits: Vec::new() }
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
        let before = self.len();
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
                return Err(e);
            }
            if want == Logits::All {
                rows.append(&mut self.logits);
            }
            done += chunk.len();
            progress(done);
        }
        if logits == Logits::All {
            self.logits = rows;
        }
        Ok(done)
    }

    /// Forgets all tokens from position `n` on, and the logits.
    pub fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        self.tokens.truncate(n);
        self.logits.clear();
        let model = self.model.clone();
        let mut state = model.state();
        for page in self.pages.drain(pages_for(n)..) {
            state.pages.give_back(page);
        }
    }

    /// A second session with the same tokens, sharing the cache of the prefix: nothing is copied until one of them
    /// writes into a shared page.
    pub fn fork(&self) -> Session {
        let mut state = self.model.state();
        for page in &self.pages {
            state.pages.share(*page);
        }
        Session {
            model: self.model.clone(),
            tokens: self.tokens.clone(),
            pages: self.pages.clone(),
            logits: self.logits.clone(),
        }
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

    /// Owns pages for `n` more positions, none of them shared where it will write.
    fn make_room(&mut self, n: usize, state: &mut State) -> Result<(), Error> {
        let first = self.len() / KV_PAGE;
        if let Some(page) = self.pages.get_mut(first).filter(|p| n > 0 && state.pages.is_shared(**p)) {
            let copy = state.pages.take();
            let reserved = state.executor.reserve_pages(state.pages.len());
            if let Err(e) = reserved {
                state.pages.give_back(copy);
                return Err(e.into());
            }
            state.executor.copy_page(*page, copy);
            state.pages.give_back(std::mem::replace(page, copy));
        }
        while self.pages.len() < pages_for(self.len() + n) {
            self.pages.push(state.pages.take());
        }
        state.executor.reserve_pages(state.pages.len())?;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.model.state();
        for page in self.pages.drain(..) {
            state.pages.give_back(page);
        }
    }
}

impl Model {
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
        let mut state = self.state();
        let mut tokens = Vec::with_capacity(feeds.iter().map(|f| f.tokens.len()).sum());
        for (sequence, feed) in feeds.iter_mut().enumerate() {
            feed.session.make_room(feed.tokens.len(), &mut state)?;
            let start = feed.session.len();
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
        if tokens.is_empty() {
            return Ok(());
        }
        let tables: Vec<&[PageId]> = feeds.iter().map(|f| f.session.pages.as_slice()).collect();
        let State { executor, logits, .. } = &mut *state;
        executor.forward(Batch { tokens: &tokens, tables: &tables }, logits)?;
        let mut rows = logits.as_slice();
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
