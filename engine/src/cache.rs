//! A session's part of the KV cache.

use llamay_plan::{ExecError, KvType, PageId};

use crate::model::State;
use crate::pages::{Pages, Table};

/// The pages of one session's tokens, in every group of cache layers.
///
/// All methods take the model's pages, of which a session owns some; a cache that is not empty has to be
/// [cleared](SessionCache::clear) before it is dropped.
#[derive(Debug)]
pub(crate) struct SessionCache {
    /// Positions that were computed. Groups with a window hold only the last of them.
    len: usize,
    /// [`State::epoch`] when they were.
    epoch: u64,
    /// One a group.
    tables: Vec<Table>,
}

impl SessionCache {
    pub(crate) fn new(n_groups: usize, epoch: u64) -> SessionCache {
        SessionCache {
            len: 0,
            epoch,
            tables: std::iter::repeat_with(Table::default).take(n_groups).collect(),
        }
    }

    /// The next token's position.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The tables, as [`llamay_plan::Batch`] wants them.
    pub(crate) fn tables(&self) -> Vec<&[PageId]> {
        self.tables.iter().map(Table::pages).collect()
    }

    /// Bytes of the pages.
    pub(crate) fn bytes(&self, kv: KvType, pages: &[Pages]) -> usize {
        let page = |pool: &Pages| pool.group().bytes_per_token(kv) * llamay_plan::KV_PAGE;
        self.tables.iter().zip(pages).map(|(table, pool)| table.n_held() * page(pool)).sum()
    }

    /// Owns pages for `n` more positions, none of them shared where it will write. After an error, and as long as nothing
    /// is [kept](SessionCache::keep), [`SessionCache::drop_room`] takes it back.
    pub(crate) fn make_room(&mut self, n: usize, state: &mut State) -> Result<(), ExecError> {
        let (start, end) = (self.len, self.len + n);
        for (group, (table, pool)) in self.tables.iter_mut().zip(&mut state.pages).enumerate() {
            table.forget_before(pool.group().first_kept_while(start, n), pool);
            table.make_room(start, end, pool, group, &mut *state.executor)?;
        }
        Ok(())
    }

    /// Gives back the pages that nothing was computed for.
    pub(crate) fn drop_room(&mut self, pages: &mut [Pages]) {
        for (table, pool) in self.tables.iter_mut().zip(pages) {
            table.truncate(self.len, pool);
        }
    }

    /// Counts `n` more positions as computed, and gives back what the windows have left behind.
    pub(crate) fn keep(&mut self, n: usize, pages: &mut [Pages]) {
        self.len += n;
        for (table, pool) in self.tables.iter_mut().zip(pages) {
            table.forget_before(pool.group().first_kept(self.len), pool);
        }
    }

    /// Forgets the positions from `n` on. Where a window has left behind what the token at `n` would see, it forgets all.
    pub(crate) fn truncate(&mut self, n: usize, pages: &mut [Pages]) {
        if n >= self.len {
            return;
        }
        let whole = self.tables.iter().zip(&*pages).all(|(t, pool)| t.holds_from(pool.group().first_seen(n)));
        if !whole {
            return self.clear(pages);
        }
        self.len = n;
        self.drop_room(pages);
    }

    /// Forgets everything if the device that computed it is gone.
    pub(crate) fn follow(&mut self, state: &mut State) {
        if self.epoch != state.epoch {
            self.clear(&mut state.pages);
            self.epoch = state.epoch;
        }
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, pages: &mut [Pages]) {
        self.len = 0;
        self.tables.iter_mut().zip(pages).for_each(|(table, pool)| table.clear(pool));
    }

    /// The same positions for a second session.
    pub(crate) fn share(&self, pages: &mut [Pages]) -> SessionCache {
        let tables = self.tables.iter().zip(pages).map(|(table, pool)| table.share(pool)).collect();
        SessionCache { len: self.len, epoch: self.epoch, tables }
    }
}
