//! The merge loop that byte-pair encoding and SentencePiece share.
//!
//! Symbols start as single bytes or characters. Of all neighbouring pairs that may be joined the best is joined, the
//! leftmost of equals first, until none is left. Short words are searched from end to end for each join, which is
//! quadratic but fast; longer ones keep their pairs in a heap, so n symbols take O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Part of a text and the token that spells it ([`NO_TOKEN`](crate::vocab::NO_TOKEN) if none does).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub start: u32,
    pub end: u32,
    pub token: u32,
}

/// The result of joining two symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// Lower goes first.
    pub order: u32,
    pub token: u32,
}

/// Which neighbours may be joined.
pub(crate) trait Rule {
    fn join(&self, left: Symbol, right: Symbol) -> Option<Join>;
}

/// Up to this many symbols a plain search beats the heap.
const SHORT: usize = 40;

const END: u32 = u32::MAX;

/// Memory of the merge loop, kept from word to word.
#[derive(Default)]
pub(crate) struct Merger {
    /// The symbols of the word; [`Merger::run`] leaves the result here.
    pub symbols: Vec<Symbol>,
    joins: Vec<Option<Join>>,
    links: Vec<Link>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// A pair in the heap, compared by `order`, then place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    order: u32,
    /// Index of the left symbol.
    left: u32,
    /// Where the right symbol ended when the pair was made: if it still does, neither side has changed since.
    end: u32,
    token: u32,
}

impl Merger {
    /// Joins `self.symbols`, fewer than 2³² of them, as far as `rule` allows.
    pub(crate) fn run(&mut self, rule: &impl Rule) {
        if self.symbols.len() <= SHORT { self.run_short(rule) } else { self.run_long(rule) }
    }

    fn run_short(&mut self, rule: &impl Rule) {
        let symbols = &mut self.symbols;
        let joins = &mut self.joins;
        joins.clear();
        joins.extend(symbols.windows(2).map(|pair| rule.join(pair[0], pair[1])));
        loop {
            let candidates = joins.iter().enumerate().filter_map(|(i, join)| Some((join.as_ref()?.order, i)));
            let Some((_, i)) = candidates.min() else { return };
            if let Some(join) = joins[i] {
                symbols[i].token = join.token;
            }
            symbols[i].end = symbols[i + 1].end;
            symbols.remove(i + 1);
            joins.remove(i);
            if i > 0 {
                joins[i - 1] = rule.join(symbols[i - 1], symbols[i]);
            }
            if i < joins.len() {
                joins[i] = rule.join(symbols[i], symbols[i + 1]);
            }
        }
    }

    fn run_long(&mut self, rule: &impl Rule) {
        let Merger { symbols, links, heap, .. } = self;
        let n = symbols.len() as u32;
        links.clear();
        links.extend((0..n).map(|i| Link {
            prev: i.wrapping_sub(1), // END for the first
            next: if i + 1 < n { i + 1 } else { END },
        }));
        let candidate = |symbols: &[Symbol], left: u32, right: u32| {
            let (l, r) = (symbols[left as usize], symbols[right as usize]);
            let join = rule.join(l, r)?;
            Some(Reverse(Candidate { order: join.order, left, end: r.end, token: join.token }))
        };
        let mut seed = std::mem::take(heap).into_vec();
        seed.clear();
        seed.extend((1..n).filter_map(|right| candidate(symbols, right - 1, right)));
        *heap = BinaryHeap::from(seed);

        while let Some(Reverse(best)) = heap.pop() {
            let left = best.left;
            let right = links[left as usize].next;
            // A symbol joined away has an empty range, which no candidate's end fits.
            if right == END || dead(symbols[left as usize]) || symbols[right as usize].end != best.end {
                continue;
            }
            symbols[left as usize].end = best.end;
            symbols[left as usize].token = best.token;
            kill(&mut symbols[right as usize]);
            let Link { next, .. } = links[right as usize];
            links[left as usize].next = next;
            if next != END {
                links[next as usize].prev = left;
                heap.extend(candidate(symbols, left, next));
            }
            let prev = links[left as usize].prev;
            if prev != END {
                heap.extend(candidate(symbols, prev, left));
            }
        }
        symbols.retain(|&symbol| !dead(symbol));
    }
}

fn kill(symbol: &mut Symbol) {
    symbol.end = symbol.start;
}

fn dead(symbol: Symbol) -> bool {
    symbol.start == symbol.end
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Joins any two symbols whose lengths together stay within a power of two that depends on the content.
    struct Toy<'a> {
        text: &'a [u8],
        calls: Cell<usize>,
    }

    impl Rule for Toy<'_> {
        fn join(&self, left: Symbol, right: Symbol) -> Option<Join> {
            self.calls.set(self.calls.get() + 1);
            let sum: u32 =
                self.text[left.start as usize..right.end as usize].iter().map(|&b| u32::from(b)).sum();
            let len = right.end - left.start;
            (!sum.is_multiple_of(5) && len <= 16).then_some(Join { order: sum % 7, token: sum })
        }
    }

    fn symbols(text: &[u8]) -> Vec<Symbol> {
        (0..text.len() as u32)
            .map(|i| Symbol { start: i, end: i + 1, token: u32::from(text[i as usize]) })
            .collect()
    }

    proptest! {
        #[test]
        fn long_and_short_loops_agree(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let rule = Toy { text: &text, calls: Cell::new(0) };
            let mut short = Merger { symbols: symbols(&text), ..Merger::default() };
            short.run_short(&rule);
            let mut long = Merger { symbols: symbols(&text), ..Merger::default() };
            long.run_long(&rule);
            prop_assert_eq!(short.symbols, long.symbols);
        }
    }

    #[test]
    fn a_long_word_takes_a_linear_number_of_lookups() {
        for n in [1_000, 10_000, 100_000] {
            let text: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
            let rule = Toy { text: &text, calls: Cell::new(0) };
            let mut merger = Merger { symbols: symbols(&text), ..Merger::default() };
            merger.run(&rule);
            // One look-up a pair at first, then two a join, of which there are fewer than symbols.
            assert!(rule.calls.get() < 3 * n, "{} look-ups for {n} symbols", rule.calls.get());
        }
    }
}
