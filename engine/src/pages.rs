//! Which pages of the KV cache belong to whom. Sequences that share a prefix share its pages.

use llamay_plan::{KV_PAGE, PageId};

/// Counts the owners of every page.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    owners: Vec<u32>,
    free: Vec<PageId>,
}

impl Pages {
    /// A page with one owner: a freed one, or a new one at the end.
    pub(crate) fn take(&mut self) -> PageId {
        let page = self.free.pop().unwrap_or_else(|| {
            self.owners.push(0);
            (self.owners.len() - 1) as PageId
        });
        self.owners[page as usize] = 1;
        page
    }

    /// One owner more.
    pub(crate) fn share(&mut self, page: PageId) {
        self.owners[page as usize] += 1;
    }

    /// One owner less; the last one frees the page.
    pub(crate) fn give_back(&mut self, page: PageId) {
        let owners = &mut self.owners[page as usize];
        *owners -= 1;
        if *owners == 0 {
            self.free.push(page);
        }
    }

    /// Whether somebody else would see a write to the page.
    pub(crate) fn is_shared(&self, page: PageId) -> bool {
        self.owners[page as usize] > 1
    }

    /// Pages that exist, owned or free.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }
}

/// Pages that hold `n` positions.
pub(crate) const fn pages_for(n: usize) -> usize {
    n.div_ceil(KV_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_page_is_used_again_and_a_shared_one_is_not_freed() {
        let mut pages = Pages::default();
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
}
