//! `llamay run`: an answer, a completion, or a chat.

use std::collections::hash_map::RandomState;
#[cfg(unix)]
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use llamay_engine::lora::is_adapter;
use llamay_engine::tokenizer::EncodeOptions;
use llamay_engine::tokenizer::template::ChatTemplate;
use llamay_engine::{Cancel, Chat, Error, Finish, GenerateOptions, Generation, Model, Speculator};
use serde_json::json;

use crate::args::{self, Opened, RunOptions};
use crate::chat::{self, Conversation};
use crate::error::CliError;
use crate::generation::{self, GenerationArgs};
use crate::output;
use crate::speculation::SpeculationArgs;

const AFTER_HELP: &str = "\
Without PROMPT, standard input is the prompt; on a terminal a chat begins. With both, what is piped in is added to
PROMPT. A final newline of standard input is taken off. In a chat, Ctrl-C stops the answer; elsewhere it ends the
program with exit code 130 after the text so far. --raw takes text that spells a control token for that token.

Examples:
  llamay run model.gguf
  llamay run model.gguf \"Why is the sky blue?\" --temp 0 --stats
  cat letter.txt | llamay run model.gguf \"Summarise this letter:\"
  llamay run model.gguf --raw \"Once upon a time\" -n 64
  llamay run model.gguf \"Add comments to this code:\" --lookup < code.py";

/// Answer a prompt, complete a text, or chat
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file
    model: PathBuf,
    /// The prompt
    prompt: Option<String>,
    /// Complete the prompt as it is, without the model's chat template
    #[arg(long, conflicts_with_all = ["system", "interactive"])]
    raw: bool,
    /// System message of the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Chat even where standard input is no terminal; PROMPT is the first message
    #[arg(short = 'i', long, conflicts_with = "json")]
    interactive: bool,
    /// Show times and speed of each answer on standard error
    #[arg(long)]
    stats: bool,
    /// Print one object in the end instead of text as it comes: text, finish, tokens, seed, stats
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    run: RunOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let options = args.generation.options()?;
    let prompt = if args.interactive { None } else { prompt(args)? };
    let mut model_options = args.run.options()?;
    let draft = args.speculation.draft(&mut model_options)?;
    let opened = args::open(&args.model, &model_options, |gguf| {
        draft.as_ref().map_or(Ok(()), |draft| draft.check(gguf))?;
        // An adapter has no template either; the engine says that it is no model.
        if args.raw || is_adapter(gguf) {
            return Ok(());
        }
        let source = gguf.metadata().str("tokenizer.chat_template").map_err(Error::from)?;
        // Compiled here as well, so that a template that is not understood is told before the weights are loaded.
        ChatTemplate::new(source.ok_or(Error::NoTemplate)?, "", "").map_err(Error::from)?;
        Ok(())
    })?;
    let speculator = args.speculation.speculator(draft, &opened.model)?;
    match prompt {
        Some(prompt) => one_shot(args, &options, &opened, speculator, &prompt),
        None => {
            let chat = begin_chat(args, &opened.model, speculator)?;
            let conversation = Conversation::new(chat, options, opened.load_time, args.stats);
            chat::interact(conversation, args.prompt.as_deref())
        }
    }
}

/// The prompt of one answer; `None` asks for a chat.
fn prompt(args: &Args) -> Result<Option<String>, CliError> {
    let stdin = io::stdin();
    match &args.prompt {
        Some(prompt) if !is_pipe_or_file() => Ok(Some(prompt.clone())),
        Some(prompt) => {
            let more = piped()?;
            let gap = if more.is_empty() { "" } else { "\n\n" };
            Ok(Some(format!("{prompt}{gap}{more}")))
        }
        None if !stdin.is_terminal() => {
            let prompt = piped()?;
            if prompt.is_empty() {
                return Err(CliError::Usage("standard input is empty; give a prompt".to_owned()));
            }
            Ok(Some(prompt))
        }
        None if args.raw => Err(CliError::Usage("--raw wants a prompt to complete".to_owned())),
        None if args.json => Err(CliError::Usage("--json wants a prompt".to_owned())),
        None => Ok(None),
    }
}

/// Standard input to its end, without the newline that `echo` and editors put there.
fn piped() -> Result<String, CliError> {
    let mut text = String::new();
    if let Err(e) = io::stdin().lock().read_to_string(&mut text) {
        return Err(CliError::Failure(format!("standard input cannot be read as UTF-8 text: {e}")));
    }
    if text.ends_with('\n') {
        text.pop();
        text.truncate(text.strip_suffix('\r').unwrap_or(&text).len());
    }
    Ok(text)
}

/// Whether something was deliberately connected to standard input. Of a program started by another one, it is often a
/// socket or a device that never ends.
#[cfg(unix)]
fn is_pipe_or_file() -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;
    let kind = io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    kind.is_ok_and(|m| m.is_file() || m.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe_or_file() -> bool {
    false
}

fn begin_chat(args: &Args, model: &Model, speculator: Option<Speculator>) -> Result<Chat, CliError> {
    let mut chat = Chat::new(model)?;
    chat.set_speculator(speculator);
    if let Some(system) = &args.system {
        chat.set_system(Some(system))?;
    }
    Ok(chat)
}

/// Prints text as it comes; after a failed write it asks for the end.
pub(crate) struct Printer<'a> {
    cancel: &'a Cancel,
    failed: Option<CliError>,
    in_line: bool,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Printer<'a> {
        Printer { cancel, failed: None, in_line: false }
    }

    pub(crate) fn text(&mut self, text: &str) {
        if self.failed.is_some() || text.is_empty() {
            return;
        }
        self.in_line = !text.ends_with('\n');
        if let Err(error) = output::print(text) {
            self.failed = Some(error);
            self.cancel.cancel();
        }
    }

    /// Ends the last line. An error if any write failed.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        if self.in_line {
            self.text("\n");
        }
        self.failed.map_or(Ok(()), Err)
    }
}

/// One answer or completion.
fn one_shot(
    args: &Args,
    options: &GenerateOptions,
    opened: &Opened,
    speculator: Option<Speculator>,
    prompt: &str,
) -> Result<(), CliError> {
    let Opened { model, load_time } = opened;
    let mut options = options.clone();
    let seed = *options.sampling.seed.get_or_insert_with(arbitrary_seed);
    let cancel = Cancel::new();
    on_interrupt(&cancel, true)?;
    let mut printer = Printer::new(&cancel);
    let mut show = |text: &str| {
        if !args.json {
            printer.text(text);
        }
    };
    let (generation, dropped) = if args.raw {
        let encode = EncodeOptions { add_special: true, parse_special: true };
        let tokens = model.tokenizer().encode(prompt, encode);
        let mut session = model.session();
        session.set_speculator(speculator);
        (session.generate(&tokens, &options, &cancel, &mut show)?, 0)
    } else {
        let mut chat = begin_chat(args, model, speculator)?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt.into());
        }
        let reply = chat.say(prompt, &options, &cancel, &mut show)?;
        (reply.generation, reply.dropped)
    };
    printer.finish()?;
    args::tell_notices(model);
    if args.json {
        output::print_json(&as_json(&generation, dropped, seed, *load_time))?;
    }
    if args.stats {
        output::note(&generation::stats_text(*load_time, &generation.stats));
    }
    match generation.finish {
        Finish::Cancelled => Err(CliError::Interrupted),
        Finish::ContextFull if args.raw => {
            let (limit, n) = (model.context(), generation.tokens.len());
            Err(CliError::Failure(format!(
                "the context of {limit} positions was full after {n} tokens; use a larger one (-c) or fewer tokens (-n)"
            )))
        }
        Finish::ContextFull => {
            output::note(&context_full(model));
            Ok(())
        }
        Finish::End | Finish::Stop(_) | Finish::Length => Ok(()),
    }
}

/// What a chat says when an answer fills the context.
pub(crate) fn context_full(model: &Model) -> String {
    format!(
        "warning: the answer was cut off, since the context of {} positions is full; a larger one (-c) has more room",
        model.context()
    )
}

fn as_json(generation: &Generation, dropped: usize, seed: u64, load_time: Duration) -> serde_json::Value {
    let stop = match &generation.finish {
        Finish::Stop(text) => Some(text),
        _ => None,
    };
    json!({
        "text": generation.text,
        "finish": generation::finish_name(&generation.finish),
        "stop": stop,
        "tokens": generation.tokens,
        "dropped_messages": dropped,
        "seed": seed,
        "stats": generation::stats_json(load_time, &generation.stats),
    })
}

/// A seed of 32 bits, which every reader of JSON keeps exact.
fn arbitrary_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Makes Ctrl-C cancel the work; where it `ends` the program, a second one does so at once.
pub(crate) fn on_interrupt(cancel: &Cancel, ends: bool) -> Result<(), CliError> {
    let cancel = cancel.clone();
    let handler = move || {
        if ends && cancel.is_cancelled() {
            std::process::exit(130);
        }
        cancel.cancel();
    };
    ctrlc::set_handler(handler).map_err(|e| CliError::Failure(format!("Ctrl-C cannot be caught: {e}")))
}
