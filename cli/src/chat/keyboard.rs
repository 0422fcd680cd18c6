//! The keyboard, with line editing and a history that outlives the chat.

use std::fs;
use std::path::PathBuf;

use rustyline::error::ReadlineError;
use rustyline::history::{History, MemHistory, SearchDirection};
use rustyline::{Config, Editor};

use super::input::{Line, Lines};
use crate::error::CliError;

/// Messages kept in the history.
const HISTORY: usize = 1000;

/// The keyboard.
pub(super) struct Keyboard {
    editor: Editor<(), MemHistory>,
    /// Where the history is kept, a JSON string a line, since messages may have several lines.
    file: Option<PathBuf>,
}

impl Keyboard {
    pub(super) fn open() -> Result<Keyboard, CliError> {
        let fail = |e: ReadlineError| CliError::Failure(format!("the terminal cannot be used: {e}"));
        let config =
            Config::builder().max_history_size(HISTORY).map_err(fail)?.auto_add_history(false).build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(fail)?;
        let file = history_file();
        let kept = file.as_ref().and_then(|f| fs::read_to_string(f).ok()).unwrap_or_default();
        for message in kept.lines().filter_map(|line| serde_json::from_str::<String>(line).ok()) {
            editor.add_history_entry(message).map_err(fail)?;
        }
        Ok(Keyboard { editor, file })
    }

    /// Writes the history. A chat does not fail for want of it.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        let history = self.editor.history();
        let entry = |i| history.get(i, SearchDirection::Forward).ok().flatten();
        let lines = (0..history.len()).filter_map(entry).map(|e| format!("{}\n", serde_json::json!(e.entry)));
        if let Some(folder) = file.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(file, lines.collect::<String>());
    }
}

impl Lines for Keyboard {
    fn line(&mut self, prompt: &str) -> Result<Line, CliError> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Line::Text(line)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(e) => Err(CliError::Failure(format!("the terminal cannot be read: {e}"))),
        }
    }

    fn remember(&mut self, message: &str) {
        if self.editor.add_history_entry(message).is_ok() {
            self.save();
        }
    }
}

/// `llamay/history` in the user's folder for state; `None` where there is no such folder.
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state =
        folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local").join("state")))?;
    Some(state.join("llamay").join("history"))
}
