//! Guesses from the text itself: it may go on as it did where its last tokens occurred before.

/// The longest n-gram that is looked for, and the shortest.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;
/// Slots of the table, as a power of two: at the most 4 MiB, which hold the n-grams of 350 000 tokens.
const MIN_BITS: u32 = 8;
const MAX_BITS: u32 = 20;

/// A text and a table of its n-grams.
///
/// Each slot has the place behind the last n-gram of its hash. Older ones are forgotten, and so are n-grams whose slot
/// another one takes; what is found is compared with the text, so that a guess is always a real continuation. A token
/// costs a few steps, whatever the length of the text.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookup {
    text: Vec<u32>,
    /// Positions in `text`; 0 is none, since no n-gram ends there.
    slots: Vec<u32>,
    /// Where the copying goes on, as long as the text follows.
    source: Option<usize>,
}

impl Lookup {
    /// Forgets the text, before one of up to `context` tokens.
    pub(super) fn begin(&mut self, context: usize) {
        let n_grams = context.saturating_mul(LONGEST - SHORTEST + 1).max(1);
        let bits = n_grams.ilog2().saturating_add(1).clamp(MIN_BITS, MAX_BITS);
        self.text.clear();
        self.source = None;
        self.slots.clear();
        self.slots.resize(1 << bits, 0);
    }

    /// Up to `n` tokens that may come behind `text` and then `next`. `text` begins as in the call before.
    pub(super) fn guess(&mut self, text: &[u32], next: u32, n: usize) -> Vec<u32> {
        for token in text.get(self.text.len()..).unwrap_or_default() {
            self.push(*token);
        }
        self.push(next);
        self.source = self.source.or_else(|| self.find());
        let Some(source) = self.source else { return Vec::new() };
        let mut guesses = Vec::with_capacity(n);
        for at in source..source + n {
            // A source that reaches the end of the text goes on with the guesses, as in LZ77: a text that repeats itself.
            let token = self.text.get(at).or_else(|| guesses.get(at - self.text.len()));
            guesses.extend(token.copied());
        }
        guesses
    }

    fn push(&mut self, token: u32) {
        self.source = self.source.filter(|at| self.text.get(*at) == Some(&token)).map(|at| at + 1);
        // The n-grams before this token have something to be continued with now.
        if let Ok(end) = u32::try_from(self.text.len()) {
            for n in SHORTEST..=LONGEST.min(self.text.len()) {
                let slot = self.slot(n);
                self.slots[slot] = end;
            }
        }
        self.text.push(token);
    }

    /// The place behind the last occurrence of the longest n-gram that the text ends with and that was there before.
    fn find(&self) -> Option<usize> {
        (SHORTEST..=LONGEST.min(self.text.len())).rev().find_map(|n| {
            let at = self.slots[self.slot(n)] as usize;
            let before = self.text.get(at.checked_sub(n)?..at)?;
            (before == &self.text[self.text.len() - n..]).then_some(at)
        })
    }

    /// The slot of the last `n` tokens: Fibonacci hashing, whose upper bits are the good ones.
    fn slot(&self, n: usize) -> usize {
        let gram = &self.text[self.text.len() - n..];
        let hash = gram.iter().fold(n as u64, |hash, token| {
            (hash.rotate_left(23) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (hash >> (64 - self.slots.len().ilog2())) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether `guesses` continue some earlier occurrence of the last tokens of `text`, perhaps beyond its end.
    fn is_real(text: &[u32], guesses: &[u32]) -> bool {
        let last = &text[text.len() - SHORTEST..];
        let whole = [text, guesses].concat();
        (SHORTEST..text.len()).any(|at| &whole[at - SHORTEST..at] == last && whole[at..].starts_with(guesses))
    }

    fn started(context: usize) -> Lookup {
        let mut lookup = Lookup::default();
        lookup.begin(context);
        lookup
    }

    proptest! {
        #[test]
        fn guesses_are_real_continuations(
            prompt in prop::collection::vec(0..5u32, 0..200),
            rest in prop::collection::vec((0..5u32, any::<bool>()), 1..200),
            n in 0..20usize,
        ) {
            let mut lookup = started(64);
            let mut text = prompt;
            let mut expected = None;
            for (token, follow) in rest {
                // A text that now follows the guesses and now does not.
                let next = expected.filter(|_| follow).unwrap_or(token);
                let guesses = lookup.guess(&text, next, n);
                text.push(next);
                prop_assert!(guesses.len() <= n);
                prop_assert!(guesses.is_empty() || is_real(&text, &guesses), "{text:?} {guesses:?}");
                expected = guesses.first().copied();
            }
            prop_assert_eq!(lookup.text, text);
        }
    }

    #[test]
    fn the_last_of_the_longest_matches_is_continued() {
        let mut lookup = started(100);
        assert_eq!(lookup.guess(&[1, 2, 3, 4, 5, 6, 9, 2, 3, 7], 2, 3), Vec::<u32>::new());
        assert_eq!(lookup.guess(&[1, 2, 3, 4, 5, 6, 9, 2, 3, 7, 2], 3, 3), [7, 2, 3]);
        let mut lookup = started(100);
        let text = [1, 2, 3, 4, 5, 6, 9, 3, 4, 8, 0, 1, 2, 3];
        assert_eq!(lookup.guess(&text, 4, 2), [5, 6], "four tokens say more than the two that came later");
    }

    #[test]
    fn a_source_is_followed_as_long_as_the_text_follows_it() {
        let mut lookup = started(100);
        let mut text = vec![1, 2, 3, 4, 7, 7, 8, 5, 6, 7, 7, 9, 0, 1];
        assert_eq!(lookup.guess(&text, 2, 2), [3, 4]);
        text.extend([2, 3, 4, 7]);
        assert_eq!(lookup.guess(&text, 7, 2), [8, 5], "not 9, which follows the later 7 7");
        text.extend([7, 1]);
        assert_eq!(lookup.guess(&text, 2, 1), [3], "what was said first is found anew");
    }

    #[test]
    fn a_text_that_repeats_itself_is_guessed_beyond_its_end() {
        let mut lookup = started(100);
        assert_eq!(lookup.guess(&[4, 5, 6, 4, 5, 6, 4], 5, 7), [6, 4, 5, 6, 4, 5, 6]);
    }

    #[test]
    fn the_table_is_bounded() {
        for (context, slots) in [(0, 1 << MIN_BITS), (1000, 4096), (usize::MAX, 1 << MAX_BITS)] {
            assert_eq!(started(context).slots.len(), slots);
        }
    }
}
