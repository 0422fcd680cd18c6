//! Chat templates: the Jinja program in a model's metadata that turns a conversation into the prompt.
//!
//! Templates are written for the [transformers] library, which runs them in Jinja2 with a handful of helpers
//! (`raise_exception`, `strftime_now`, its own `tojson`, `{% generation %}`). [`ChatTemplate`] gives them the same
//! surroundings in minijinja. A template comes with a model file and is not trusted: it reaches no file, and its
//! source, running time, nesting and output are bounded.
//!
//! [transformers]: https://huggingface.co/docs/transformers/chat_templating

mod json;
mod message;
mod python;
mod time;

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value};

pub use message::Message;
pub use time::LocalTime;

/// The longest template source accepted, in bytes. The longest known template is about 20 kB.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;

/// What a render may write beyond [`OUTPUT_PER_INPUT`] times its input, in bytes.
pub const BASE_OUTPUT_BYTES: usize = 1 << 20;

/// Bytes of output allowed for each byte of conversation. Tool definitions may appear more than once.
pub const OUTPUT_PER_INPUT: usize = 16;

/// Steps a render may take whatever its input; a step is one instruction or about 64 bytes of new data.
const BASE_FUEL: u64 = 1 << 20;

/// Further steps for each byte of conversation: some templates walk the text character by character.
const FUEL_PER_INPUT_BYTE: u64 = 16;

/// The name under which the one template is kept; it has no extension, so nothing is HTML-escaped.
const NAME: &str = "chat_template";

/// Why a chat template could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is longer than [`MAX_SOURCE_BYTES`].
    #[error("the chat template is {bytes} bytes long, more than the {MAX_SOURCE_BYTES} allowed")]
    SourceTooLong {
        /// The length of the source.
        bytes: usize,
    },
    /// The source is not a Jinja template.
    #[error("the chat template has a syntax error in line {line}: {reason}")]
    Syntax {
        /// Line of the template source, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// The template itself refuses the conversation by calling `raise_exception`.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template did something that is not possible with these messages.
    #[error("the chat template failed in line {line}: {reason}")]
    Failed {
        /// Line of the template source, from 1.
        line: usize,
        /// What went wrong there.
        reason: String,
    },
    /// The template ran for too many steps.
    #[error("the chat template did not finish within its limit of {steps} steps")]
    TooManySteps {
        /// The limit.
        steps: u64,
    },
    /// The template wrote too much.
    #[error("the chat template wrote more than its limit of {bytes} bytes")]
    OutputTooLong {
        /// The limit.
        bytes: usize,
    },
    /// A message or variable cannot be handed to the template.
    #[error("the conversation cannot be given to the chat template: {0}")]
    Input(String),
}

/// What a render is given beside the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Ends the prompt where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Tool definitions in the OpenAI layout, a JSON array. Without, the template sees `none`.
    pub tools: Option<serde_json::Value>,
    /// Further variables, such as `enable_thinking`. They win over the standard ones of the same name.
    pub variables: BTreeMap<String, serde_json::Value>,
    /// The time that `strftime_now` tells; without, the local time.
    pub now: Option<LocalTime>,
}

impl RenderOptions {
    /// The options for asking the model to answer: only the generation prompt is on.
    pub fn generation() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }
}

/// A compiled chat template with the model's special tokens. Cheap to clone, and `Send + Sync`.
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    source_bytes: usize,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source_bytes", &self.source_bytes)
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts that the template sees as `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`TemplateError::SourceTooLong`] and [`TemplateError::Syntax`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(TemplateError::SourceTooLong { bytes: source.len() });
        }
        let mut environment = environment();
        environment.add_template_owned(NAME, replace_generation_tags(source)).map_err(syntax_error)?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned(), source_bytes: source.len() })
    }

    /// The prompt for `messages`.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] where the template itself objects to the conversation, and the other variants where
    /// it fails or runs into a limit.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let input_bytes = self.source_bytes + input_bytes(messages, options)?;
        let steps = BASE_FUEL.saturating_add(FUEL_PER_INPUT_BYTE.saturating_mul(input_bytes as u64));
        let bytes = BASE_OUTPUT_BYTES.saturating_add(OUTPUT_PER_INPUT.saturating_mul(input_bytes));

        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps));
        let template = environment.get_template(NAME).map_err(syntax_error)?;
        let mut output = BoundedOutput { text: Vec::new(), limit: bytes };
        let rendered = template.render_captured_to(self.context(messages, options), &mut output);
        match rendered {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::OutOfFuel => {
                return Err(TemplateError::TooManySteps { steps });
            }
            Err(error) if error.kind() == ErrorKind::WriteFailure => {
                return Err(TemplateError::OutputTooLong { bytes });
            }
            Err(error) => return Err(run_error(error)),
        }
        // Text goes in as whole `str`s, so this cannot fail.
        String::from_utf8(output.text).map_err(|error| TemplateError::Input(error.to_string()))
    }

    /// Whether the text of a system message reaches the prompt, found out by rendering a short conversation.
    ///
    /// Some templates have no place for a system message: they refuse it or drop it.
    pub fn supports_system(&self) -> bool {
        const PROBE: &str = "d41d8cd98f";
        let messages = [Message::new("system", PROBE), Message::new("user", "Hello")];
        self.render(&messages, &RenderOptions::generation()).is_ok_and(|prompt| prompt.contains(PROBE))
    }

    /// The template's variables. Those that transformers always passes are there, if only as `none`.
    fn context(&self, messages: &[Message], options: &RenderOptions) -> Value {
        let now = options.now;
        let mut variables = BTreeMap::from([
            ("messages".to_owned(), Value::from(Serde(messages))),
            (
                "tools".to_owned(),
                options.tools.as_ref().map_or(Value::from(()), |tools| Value::from(Serde(tools))),
            ),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
            ("bos_token".to_owned(), Value::from(self.bos.as_str())),
            ("eos_token".to_owned(), Value::from(self.eos.as_str())),
            (
                "strftime_now".to_owned(),
                Value::from_function(move |format: &str| now.unwrap_or_else(LocalTime::now).strftime(format)),
            ),
        ]);
        for (name, value) in &options.variables {
            variables.insert(name.clone(), Value::from(Serde(value)));
        }
        Value::from(variables)
    }
}

/// The environment that transformers sets up for chat templates.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // The builder can only fail for delimiters, which are left as they are.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", json::tojson);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// The message of a `raise_exception`, carried as the source of minijinja's error to be told from other failures.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: &Value) -> Result<Value, minijinja::Error> {
    let message = message.to_string();
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn syntax_error(error: minijinja::Error) -> TemplateError {
    TemplateError::Syntax { line: error.line().unwrap_or(1), reason: reason(&error) }
}

fn run_error(error: minijinja::Error) -> TemplateError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = source {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TemplateError::Refused(message.clone());
        }
        source = current.source();
    }
    TemplateError::Failed { line: error.line().unwrap_or(1), reason: reason(&error) }
}

fn reason(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// The size of everything the caller hands to the template, as JSON.
fn input_bytes(messages: &[Message], options: &RenderOptions) -> Result<usize, TemplateError> {
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, messages)
        .and_then(|()| serde_json::to_writer(&mut counter, &options.tools))
        .and_then(|()| serde_json::to_writer(&mut counter, &options.variables))
        .map_err(|error| TemplateError::Input(error.to_string()))?;
    Ok(counter.0)
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects the output and fails once there is more than `limit` bytes of it.
struct BoundedOutput {
    text: Vec<u8>,
    limit: usize,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Turns `{% generation %} … {% endgeneration %}` into `{% with %} … {% endwith %}`.
///
/// transformers uses the tag to mark the assistant's text for training; for a prompt only its body and its scope
/// matter. minijinja takes no tags of others, hence the change to the source.
fn replace_generation_tags(source: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (text, tag) = rest.split_at(start + 2);
        replaced.push_str(text);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inner = &tag[..end];
        let name = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        if let "generation" | "endgeneration" = name {
            let keyword = if name == "generation" { "with" } else { "endwith" };
            replaced.push_str(&inner.replace(name, keyword));
            rest = &tag[end..];
        }
    }
    replaced.push_str(rest);
    replaced
}
