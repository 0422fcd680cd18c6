//! Lines from the keyboard or a pipe, and messages made of them.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::error::CliError;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    /// Ctrl-C, where it does not end the program by itself.
    #[cfg_attr(not(unix), allow(dead_code))]
    Interrupted,
    /// Ctrl-D, or the end of a pipe.
    End,
}

/// Where lines come from.
pub(super) trait Lines {
    fn line(&mut self, prompt: &str) -> Result<Line, CliError>;

    /// Keeps a whole message for later sessions.
    fn remember(&mut self, _message: &str) {}
}

/// What the user said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Message(String),
    Interrupted,
    End,
}

const PROMPT: &str = "> ";
const MORE: &str = ". ";
const FENCE: &str = "\"\"\"";

/// Reads a message: a line, several that end with a backslash, or all between two `"""`.
pub(super) fn message(lines: &mut dyn Lines) -> Result<Input, CliError> {
    let mut text = String::new();
    let mut prompt = PROMPT;
    let mut fenced = false;
    loop {
        let line = match lines.line(prompt)? {
            Line::Text(line) => line,
            // Takes back what was said so far.
            Line::Interrupted => return Ok(Input::Interrupted),
            Line::End if text.is_empty() => return Ok(Input::End),
            Line::End => return Ok(Input::Message(text)),
        };
        let mut line = line.as_str();
        if prompt == PROMPT
            && let Some(rest) = line.strip_prefix(FENCE)
        {
            (fenced, line) = (true, rest);
        }
        prompt = MORE;
        if fenced {
            match line.strip_suffix(FENCE) {
                Some(last) => {
                    text.push_str(last);
                    return Ok(Input::Message(text.trim_matches('\n').to_owned()));
                }
                None => text.push_str(line),
            }
        } else {
            match line.strip_suffix('\\') {
                Some(part) => text.push_str(part),
                None => {
                    text.push_str(line);
                    return Ok(Input::Message(text));
                }
            }
        }
        text.push('\n');
    }
}

/// The keyboard with line editing, or a pipe as it is.
#[cfg(unix)]
pub(super) fn open() -> Result<Box<dyn Lines>, CliError> {
    if io::stdin().is_terminal() {
        Ok(Box::new(super::keyboard::Keyboard::open()?))
    } else {
        Ok(Box::new(Piped))
    }
}

/// Lines as they come: the console edits them by itself.
#[cfg(not(unix))]
pub(super) fn open() -> Result<Box<dyn Lines>, CliError> {
    Ok(Box::new(Piped))
}

/// Lines of a pipe.
struct Piped;

impl Lines for Piped {
    fn line(&mut self, prompt: &str) -> Result<Line, CliError> {
        if io::stdin().is_terminal() {
            let _ = write!(io::stderr().lock(), "{prompt}");
        }
        let mut line = String::new();
        let n = io::stdin().lock().read_line(&mut line);
        match n {
            Ok(0) => Ok(Line::End),
            Ok(_) => Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_owned())),
            Err(e) => Err(CliError::Failure(format!("standard input cannot be read as UTF-8 text: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a test.
    struct Script(std::vec::IntoIter<Line>);

    impl Lines for Script {
        fn line(&mut self, _prompt: &str) -> Result<Line, CliError> {
            Ok(self.0.next().unwrap_or(Line::End))
        }
    }

    fn messages(text: &[&str]) -> Vec<Input> {
        let lines: Vec<Line> = text
            .iter()
            .map(|line| if *line == "^C" { Line::Interrupted } else { Line::Text((*line).to_owned()) })
            .collect();
        let mut script = Script(lines.into_iter());
        let mut all = Vec::new();
        loop {
            match message(&mut script).unwrap() {
                Input::End => return all,
                input => all.push(input),
            }
        }
    }

    fn said(text: &str) -> Input {
        Input::Message(text.to_owned())
    }

    #[test]
    fn a_backslash_goes_on_in_the_next_line() {
        assert_eq!(messages(&["a", "b \\", "c\\", "d", "e"]), [said("a"), said("b \nc\nd"), said("e")]);
        assert_eq!(messages(&["a\\"]), [said("a\n")], "the end of input ends a message");
    }

    #[test]
    fn fences_keep_lines_as_they_are() {
        assert_eq!(messages(&["\"\"\"", "a\\", "/exit", "\"\"\"", "b"]), [said("a\\\n/exit"), said("b")]);
        assert_eq!(messages(&["\"\"\"one\"\"\"", "x"]), [said("one"), said("x")]);
        assert_eq!(messages(&["\"\"\"one", "two\"\"\""]), [said("one\ntwo")]);
    }

    #[test]
    fn an_interrupt_takes_back_what_was_typed() {
        assert_eq!(messages(&["a\\", "^C", "b"]), [Input::Interrupted, said("b")]);
    }
}
