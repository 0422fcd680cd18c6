//! Patterns that split off numbers, whole or in groups.

use super::class::{DECIMAL, NUMBER, Set, is_word, not, run, run_of};
use super::split::Found;
use super::split::Found::{Gap, Match, Threes};

/// `\p{N}`
pub(super) fn digit(text: &str) -> Found {
    match run_of(text, NUMBER, 1) {
        0 => Gap(run(text, not(NUMBER))),
        len => Match(len),
    }
}

/// `\p{N}+`
pub(super) fn digits(text: &str) -> Found {
    match run(text, NUMBER) {
        0 => Gap(run(text, not(NUMBER))),
        len => Match(len),
    }
}

/// `\p{N}{1,3}`
pub(super) fn up_to_three_digits(text: &str) -> Found {
    match run_of(text, NUMBER, 3) {
        0 => Gap(run(text, not(NUMBER))),
        len => Match(len),
    }
}

/// `[0-9][0-9][0-9]`
pub(super) fn three_ascii_digits(text: &str) -> Found {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    match len {
        0 => Gap(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len())),
        1 | 2 => Gap(len),
        _ => Match(3),
    }
}

/// `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`: groups of three counted from a number's end, as people write them.
pub(super) fn threes(text: &str) -> Found {
    grouped(text, NUMBER)
}

/// `\d{1,3}(?=(?:\d{3})*\b)`: the same for digits, but not where a letter follows.
pub(super) fn threes_before_boundary(text: &str) -> Found {
    match grouped(text, DECIMAL) {
        Threes(len) if text[len..].starts_with(is_word) => Gap(len),
        found => found,
    }
}

/// `(?=(\d{3})+(?!\d))`, which matches between characters: cuts before each group of three digits.
pub(super) fn cut_before_threes(text: &str) -> Found {
    match to_threes(text) {
        0 => {
            let number = run(text, DECIMAL);
            let group: usize = text[..number].chars().rev().take(3).map(char::len_utf8).sum();
            // What follows the last group belongs to it, up to the next cut.
            if group < number { Threes(number - group) } else { Match(number + to_threes(&text[number..])) }
        }
        len => Gap(len),
    }
}

/// Where the first number begins that has whole groups of three, after what is left over of it.
fn to_threes(text: &str) -> usize {
    let mut at = 0;
    while at < text.len() {
        at += run(&text[at..], not(DECIMAL));
        let number = run(&text[at..], DECIMAL);
        let count = text[at..at + number].chars().count();
        if count >= 3 {
            return at + run_of(&text[at..], DECIMAL, count % 3);
        }
        at += number;
    }
    text.len()
}

fn grouped(text: &str, set: Set) -> Found {
    match run(text, set) {
        0 => Gap(run(text, not(set))),
        len => Threes(len),
    }
}
