//! From tokens back to text, one token at a time.

use crate::Tokenizer;

/// Turns tokens into text as they come, never half a character.
///
/// A token may end in the middle of a UTF-8 sequence; those bytes are held back until the sequence is complete or can
/// no longer become one, and are then U+FFFD. All that [`push`](Detokenizer::push) and [`flush`](Detokenizer::flush)
/// return, one after the other, is what [`Tokenizer::decode`] makes of the tokens.
#[derive(Clone)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    special: bool,
    strip_space: bool,
    /// The start of a character, at most three bytes.
    pending: Vec<u8>,
}

impl<'a> Detokenizer<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Detokenizer<'a> {
        Detokenizer {
            tokenizer,
            special: false,
            strip_space: tokenizer.add_space_prefix(),
            pending: Vec::new(),
        }
    }

    /// Writes control tokens out too, which otherwise give no text.
    pub fn with_special(self, special: bool) -> Self {
        Detokenizer { special, ..self }
    }

    /// Keeps the space that some vocabularies put before every text. For tokens that continue a text, such as those
    /// that a model adds to a prompt.
    pub fn continuing(self) -> Self {
        Detokenizer { strip_space: false, ..self }
    }

    /// The text that `token` completes, often one word, at times nothing. An id outside the vocabulary gives nothing.
    pub fn push(&mut self, token: u32) -> String {
        let mut text = String::new();
        self.push_to(token, &mut text);
        text
    }

    /// As [`push`](Detokenizer::push), appending to `text`.
    pub fn push_to(&mut self, token: u32, text: &mut String) {
        let bytes = self.tokenizer.token_bytes(token, self.special);
        let mut bytes: &[u8] = &bytes;
        if self.strip_space && !bytes.is_empty() {
            self.strip_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        if self.pending.is_empty() {
            let complete = append_complete(bytes, text);
            self.pending.extend_from_slice(&bytes[complete..]);
        } else {
            self.pending.extend_from_slice(bytes);
            let complete = append_complete(&self.pending, text);
            self.pending.drain(..complete);
        }
    }

    /// What was held back, as U+FFFD. For the end of the tokens.
    pub fn flush(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Appends the characters of `bytes`, U+FFFD for each sequence that can be none; returns how many bytes that covers:
/// all but the start of a last character, if there is one.
fn append_complete(bytes: &[u8], text: &mut String) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        match std::str::from_utf8(&bytes[done..]) {
            Ok(rest) => {
                text.push_str(rest);
                return bytes.len();
            }
            Err(error) => {
                let valid = done + error.valid_up_to();
                text.push_str(std::str::from_utf8(&bytes[done..valid]).unwrap_or_default());
                let Some(invalid) = error.error_len() else { return valid };
                text.push(char::REPLACEMENT_CHARACTER);
                done = valid + invalid;
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_bytes_give_the_lossy_text(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = String::new();
            let done = append_complete(&bytes, &mut text);
            prop_assert!(bytes.len() - done <= 3);
            text.push_str(&String::from_utf8_lossy(&bytes[done..]));
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
