//! The interactive chat: commands, and the loop of questions and answers.

mod command;
mod input;
#[cfg(unix)]
mod keyboard;

use std::fs;
use std::path::Path;
use std::time::Duration;

use llamay_engine::tokenizer::template::Message;
use llamay_engine::{Cancel, Chat, Finish, GenerateOptions, Stats};

use crate::args::tell_notices;
use crate::error::CliError;
use crate::run::{self, Printer};
use crate::{generation, output};
use command::Command;
use input::{Input, Lines};

/// A chat with its settings.
pub(crate) struct Conversation {
    chat: Chat,
    options: GenerateOptions,
    cancel: Cancel,
    load_time: Duration,
    /// Times of the last answer.
    last: Option<Stats>,
    show_stats: bool,
}

/// Whether the chat goes on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Exit,
}

/// Chats until the user leaves. `first` is the first message, if it is known already.
pub(crate) fn interact(mut conversation: Conversation, first: Option<&str>) -> Result<(), CliError> {
    run::on_interrupt(&conversation.cancel, false)?;
    let mut lines = input::open()?;
    output::note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.");
    if let Some(first) = first {
        conversation.handle(first)?;
    }
    conversation.converse(&mut *lines)
}

impl Conversation {
    pub(crate) fn new(
        chat: Chat,
        options: GenerateOptions,
        load_time: Duration,
        show_stats: bool,
    ) -> Conversation {
        Conversation { chat, options, cancel: Cancel::new(), load_time, last: None, show_stats }
    }

    fn converse(&mut self, lines: &mut dyn Lines) -> Result<(), CliError> {
        loop {
            match input::message(lines)? {
                Input::Message(text) if text.trim().is_empty() => {}
                Input::Message(text) => {
                    lines.remember(&text);
                    if self.handle(&text)? == Next::Exit {
                        return Ok(());
                    }
                }
                Input::Interrupted => output::note("Ctrl-D or /exit leaves."),
                Input::End => return Ok(()),
            }
        }
    }

    /// Does what an input asks for. Only a failed standard output is an error.
    fn handle(&mut self, text: &str) -> Result<Next, CliError> {
        match Command::parse(text) {
            Ok(Command::Say(text)) => self.say(&text)?,
            Ok(Command::Help) => output::note(command::HELP.trim_end()),
            Ok(Command::Clear) => {
                self.chat.clear();
                output::note("The conversation is forgotten; the system message stays.");
            }
            Ok(Command::System(text)) => self.system(text.as_deref()),
            Ok(Command::Save(path)) => self.tell(save(self.chat.messages(), Path::new(&path))),
            Ok(Command::Load(path)) => match load(Path::new(&path)) {
                Ok(messages) => {
                    output::note(&format!("{} messages from {path}", messages.len()));
                    self.chat.set_messages(messages);
                }
                Err(e) => output::note(&format!("error: {e}")),
            },
            Ok(Command::Stats) => output::note(&self.stats()),
            Ok(Command::Exit) => return Ok(Next::Exit),
            Err(problem) => output::note(&format!("error: {problem}")),
        }
        Ok(Next::GoOn)
    }

    fn say(&mut self, text: &str) -> Result<(), CliError> {
        self.cancel.reset();
        let cancel = self.cancel.clone();
        let mut printer = Printer::new(&cancel);
        let reply = self.chat.say(text, &self.options, &cancel, &mut |text| printer.text(text));
        printer.finish()?;
        tell_notices(self.chat.session().model());
        // Each answer draws other numbers, and the same ones in the same chat.
        self.options.sampling.seed = self.options.sampling.seed.map(|s| s.wrapping_add(1));
        let reply = match reply {
            Ok(reply) => reply,
            Err(e) => {
                output::note(&format!("error: {e}"));
                return Ok(());
            }
        };
        if reply.dropped > 0 {
            let messages = if reply.dropped == 1 { "message" } else { "messages" };
            output::note(&format!("dropped the {} oldest {messages} to fit the context", reply.dropped));
        }
        match reply.generation.finish {
            Finish::Cancelled => output::note("(stopped)"),
            Finish::ContextFull => output::note(&run::context_full(self.chat.session().model())),
            Finish::End | Finish::Stop(_) | Finish::Length => {}
        }
        self.last = Some(reply.generation.stats);
        if self.show_stats {
            output::note(&generation::stats_text(self.load_time, &reply.generation.stats));
        }
        Ok(())
    }

    fn system(&mut self, text: Option<&str>) {
        match self.chat.set_system(text) {
            Ok(()) if text.is_some() => output::note("The system message is set."),
            Ok(()) => output::note("There is no system message now."),
            Err(e) => output::note(&format!("error: {e}")),
        }
    }

    fn stats(&self) -> String {
        let session = self.chat.session();
        let context = format!("context      {} of {} positions", session.len(), session.model().context());
        match &self.last {
            None => context,
            Some(last) => format!("{}\n{context}", generation::stats_text(self.load_time, last)),
        }
    }

    fn tell(&self, result: Result<String, String>) {
        output::note(&result.unwrap_or_else(|e| format!("error: {e}")));
    }
}

/// Writes messages as JSON, in the form of the OpenAI chat API.
fn save(messages: &[Message], path: &Path) -> Result<String, String> {
    let fail =
        |e: &dyn std::fmt::Display| format!("{}: the conversation cannot be saved: {e}", path.display());
    let json = serde_json::to_string_pretty(messages).map_err(|e| fail(&e))?;
    fs::write(path, json + "\n").map_err(|e| fail(&e))?;
    Ok(format!("{} messages saved to {}", messages.len(), path.display()))
}

fn load(path: &Path) -> Result<Vec<Message>, String> {
    let fail =
        |e: &dyn std::fmt::Display| format!("{}: the conversation cannot be loaded: {e}", path.display());
    let json = fs::read_to_string(path).map_err(|e| fail(&e))?;
    serde_json::from_str(&json).map_err(|e| fail(&e))
}
