//! How many tokens to guess at once.

/// Guesses of the first draft.
const FIRST: usize = 2;
/// Tokens without a draft after many single guesses that were wrong: 2 to the power of this.
const LONGEST_PAUSE: u32 = 4;

/// A draft's length, which follows how the last ones went.
///
/// A draft that was right doubles it. One that was wrong brings it halfway down to what was right. Where even single
/// guesses are wrong, or a draft model finds none, it pauses for 1, 2, 4 … 16 tokens, so that a text that cannot be
/// guessed costs little.
#[derive(Clone, Debug)]
pub(super) struct DraftLength {
    max: usize,
    now: usize,
    /// Single guesses in a row that were wrong.
    misses: u32,
    /// Tokens to come without a draft.
    pause: usize,
}

impl DraftLength {
    /// Drafts of up to `max` tokens, which is at least 1.
    pub(super) fn new(max: usize) -> DraftLength {
        DraftLength { max, now: FIRST.min(max), misses: 0, pause: 0 }
    }

    /// Tokens to guess now; 0 in a pause, of which each call is one token.
    pub(super) fn next(&mut self) -> usize {
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.now
    }

    /// Learns that of `guessed` tokens the first `accepted` were right. Nothing guessed is as bad as a wrong guess, and is
    /// to be told where it has cost something.
    pub(super) fn learn(&mut self, guessed: usize, accepted: usize) {
        if accepted > 0 {
            self.misses = 0;
        }
        if accepted < guessed.max(1) {
            if accepted == 0 && self.now == 1 {
                self.pause = 1 << self.misses;
                self.misses = (self.misses + 1).min(LONGEST_PAUSE);
            }
            self.now = ((self.now + accepted) / 2).max(1);
        } else if guessed >= self.now {
            // A draft that ended early, and was right so far, says nothing about a longer one.
            self.now = (2 * self.now).min(self.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_length_grows_when_drafts_are_right_and_shrinks_when_they_are_wrong(
            max in 1..65usize,
            drafts in prop::collection::vec((0..65usize, 0..65usize), 0..200),
        ) {
            let mut length = DraftLength::new(max);
            let mut without = 0;
            for (guessed, accepted) in drafts {
                let (before, n) = (length.now, length.next());
                prop_assert!(n <= max);
                without = if n == 0 { without + 1 } else { 0 };
                prop_assert!(without <= 1 << LONGEST_PAUSE, "a pause ends");
                // A source may have fewer tokens to offer, or none.
                let guessed = guessed.min(n);
                if n == 0 || guessed == 0 && accepted > 9 {
                    continue;
                }
                let accepted = accepted.min(guessed);
                length.learn(guessed, accepted);
                if accepted < guessed || guessed == 0 {
                    prop_assert!(length.now < before || length.now == 1);
                } else {
                    prop_assert!(length.now >= before);
                    prop_assert!(guessed < n || length.now > before || length.now == max);
                }
                prop_assert!((1..=max).contains(&length.now));
            }
        }
    }

    #[test]
    fn right_drafts_reach_the_longest_soon_and_wrong_ones_cost_little() {
        let mut length = DraftLength::new(16);
        let grown: Vec<usize> = (0..5)
            .map(|_| {
                let n = length.next();
                length.learn(n, n);
                n
            })
            .collect();
        assert_eq!(grown, [2, 4, 8, 16, 16]);
        let guessed: usize = (0..1000)
            .map(|_| {
                let n = length.next();
                if n > 0 {
                    length.learn(n, 0);
                }
                n
            })
            .sum();
        assert!(guessed < 100, "{guessed} wrong guesses in a thousand tokens");
        length.learn(1, 1);
        assert_eq!(length.misses, 0);
    }
}
