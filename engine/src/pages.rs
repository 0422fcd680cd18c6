//! Which pages of the KV cache belong to whom. Sequences that share a prefix share its pages.

use llamay_plan::{ExecError, Executor, KV_PAGE, KvGroup, NO_PAGE, PageId};

/// The pages of one group of cache layers, with the number of each one's owners.
#[derive(Debug)]
pub(crate) struct Pages {
    group: KvGroup,
    owners: Vec<u32>,
    free: Vec<PageId>,
}

impl Pages {
    pub(crate) fn new(group: KvGroup) -> Pages {
        Pages { group, owners: Vec::new(), free: Vec::new() }
    }

    /// The layers and what they keep.
    pub(crate) fn group(&self) -> &KvGroup {
        &self.group
    }

    /// A page with one owner: a freed one, or a new one at the end.
    fn take(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.owners.push(0);
            (self.owners.len() - 1) as PageId
        });
        self.owners[page as usize] = 1;
        page
    }

    /// One owner more.
    fn share(&mut self, page: PageId) {
        self.owners[page as usize] += 1;
    }

    /// One owner less; the last one frees the page.
    fn give_back(&mut self, page: PageId) {
        let owners = &mut self.owners[page as usize];
        *owners -= 1;
        if *owners == 0 {
            self.free.push(page);
        }
    }

    /// Whether somebody else would see a write to the page.
    fn is_shared(&self, page: PageId) -> bool {
        self.owners[page as usize] > 1
    }

    /// Whether no page has an owner.
    pub(crate) fn all_free(&self) -> bool {
        self.free.len() == self.owners.len()
    }

    /// Pages that exist, owned or free.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

/// Pages that hold `n` positions.
const fn pages_for(n: usize) -> usize {
    n.div_ceil(KV_PAGE)
}

/// The pages of one sequence in one group of cache layers.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Position `p` is in page `pages[p / KV_PAGE]`; [`NO_PAGE`] for those given back.
    pages: Vec<PageId>,
    /// How many of the first pages were given back.
    first: usize,
}

impl Table {
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Pages that are owned, alone or with others.
    pub(crate) fn n_held(&self) -> usize {
        self.pages.len() - self.first
    }

    /// Whether all positions from `position` on are there still.
    pub(crate) fn holds_from(&self, position: usize) -> bool {
        self.first * KV_PAGE <= position
    }

    /// Gives back the pages that have no position from `position` on.
    pub(crate) fn forget_before(&mut self, position: usize, pool: &mut Pages) {
        while self.first < (position / KV_PAGE).min(self.pages.len()) {
            pool.give_back(std::mem::replace(&mut self.pages[self.first], NO_PAGE));
            self.first += 1;
        }
    }

    /// Owns pages for the positions up to `end`, and shares none from `start` on, so that these can be written.
    pub(crate) fn make_room(
        &mut self,
        start: usize,
        end: usize,
        pool: &mut Pages,
        group: usize,
        executor: &mut dyn Executor,
    ) -> Result<(), ExecError> {
        let written = self.pages.get_mut(start / KV_PAGE);
        if let Some(page) = written.filter(|p| start < end && pool.is_shared(**p)) {
            let copy = pool.take();
            if let Err(e) = executor.reserve_pages(group, pool.len()) {
                pool.give_back(copy);
                return Err(e);
            }
            executor.copy_page(group, *page, copy);
            pool.give_back(std::mem::replace(page, copy));
        }
        while self.pages.len() < pages_for(end) {
            self.pages.push(pool.take());
        }
        executor.reserve_pages(group, pool.len())
    }

    /// Gives back the pages that have no position below `n`.
    pub(crate) fn truncate(&mut self, n: usize, pool: &mut Pages) {
        let keep = pages_for(n).max(self.first).min(self.pages.len());
        self.pages.drain(keep..).for_each(|page| pool.give_back(page));
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self, pool: &mut Pages) {
        self.pages.drain(..).skip(self.first).for_each(|page| pool.give_back(page));
        self.first = 0;
    }

    /// A second table of the same pages.
    pub(crate) fn share(&self, pool: &mut Pages) -> Table {
        self.pages[self.first..].iter().for_each(|page| pool.share(*page));
        Table { pages: self.pages.clone(), first: self.first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device without layers that has room for some pages.
    struct Room(usize);

    impl Executor for Room {
        fn forward(&mut self, _: llamay_plan::Batch<'_>, _: &mut Vec<f32>) -> Result<(), ExecError> {
            Ok(())
        }

        fn run(&mut self, _: llamay_plan::Batch<'_>, _: std::ops::Range<usize>) -> Result<(), ExecError> {
            Ok(())
        }

        fn read_slot(&mut self, _: llamay_plan::SlotId, _: usize, _: &mut Vec<f32>) -> Result<(), ExecError> {
            Ok(())
        }

        fn write_slot(&mut self, _: llamay_plan::SlotId, _: &[f32]) -> Result<(), ExecError> {
            Ok(())
        }

        fn reserve_pages(&mut self, _: usize, n: usize) -> Result<(), ExecError> {
            let short = ExecError::OutOfMemory { what: "a page", bytes: 1 };
            if n > self.0 { Err(short) } else { Ok(()) }
        }

        fn copy_page(&mut self, _: usize, _: PageId, _: PageId) {}

        fn change_steps(&mut self, _: &[(usize, llamay_plan::StepChange)]) -> Result<(), ExecError> {
            Ok(())
        }
    }

    fn pool(window: Option<u32>) -> Pages {
        Pages::new(KvGroup { window, layers: Vec::new(), shapes: Vec::new() })
    }

    #[test]
    fn a_freed_page_is_used_again_and_a_shared_one_is_not_freed() {
        let mut pages = pool(None);
        let (a, b) = (pages.take(), pages.take());
        assert_ne!(a, b);
        pages.share(a);
        pages.give_back(a);
        assert!(!pages.is_shared(a));
        assert_eq!(pages.take(), 2, "the first page still has an owner");
        pages.give_back(b);
        assert_eq!(pages.take(), b);
        assert_eq!(pages.len(), 3);
    }

    #[test]
    fn positions_fill_pages() {
        assert_eq!([0, 1, KV_PAGE, KV_PAGE + 1].map(pages_for), [0, 1, 1, 2]);
    }

    #[test]
    fn a_table_keeps_the_pages_of_the_positions_between_its_ends() {
        let (mut pool, mut table, mut room) = (pool(Some(8)), Table::default(), Room(10));
        table.make_room(0, 5 * KV_PAGE, &mut pool, 0, &mut room).unwrap();
        table.forget_before(2 * KV_PAGE - 1, &mut pool);
        assert_eq!((table.pages(), table.n_held()), (&[NO_PAGE, 1, 2, 3, 4][..], 4));
        assert!(table.holds_from(KV_PAGE) && !table.holds_from(KV_PAGE - 1));
        table.truncate(3 * KV_PAGE + 1, &mut pool);
        assert_eq!(table.pages(), [NO_PAGE, 1, 2, 3]);
        table.truncate(0, &mut pool);
        assert_eq!(table.n_held(), 0);
        table.clear(&mut pool);
        assert!(pool.all_free(), "each page was given back once");
    }

    #[test]
    fn a_shared_page_is_copied_before_it_is_written_unless_memory_is_short() {
        let (mut pool, mut a, mut room) = (pool(None), Table::default(), Room(2));
        a.make_room(0, KV_PAGE + 1, &mut pool, 0, &mut room).unwrap();
        let mut b = a.share(&mut pool);
        assert!(b.make_room(KV_PAGE + 1, KV_PAGE + 2, &mut pool, 0, &mut room).is_err());
        assert_eq!(b.pages(), a.pages());
        room.0 = 3;
        b.make_room(KV_PAGE + 1, KV_PAGE + 2, &mut pool, 0, &mut room).unwrap();
        assert_eq!(a.pages()[0], b.pages()[0]);
        assert_ne!(a.pages()[1], b.pages()[1]);
        a.clear(&mut pool);
        b.clear(&mut pool);
        assert!(pool.all_free());
    }
}
