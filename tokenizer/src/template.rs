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
mod prefill;
mod python;
mod sandbox;
mod time;

use std::collections::BTreeMap;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value};

pub use message::Message;
pub use sandbox::{MAX_SOURCE_BYTES, MAX_SOURCE_TOKENS};
pub use time::LocalTime;

use sandbox::{BoundedOutput, Budget};

/// The name under which the one template is kept; it has no extension, so nothing is HTML-escaped.
const NAME: &str = "chat_template";

/// Why a chat template could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is longer than [`MAX_SOURCE_BYTES`] or [`MAX_SOURCE_TOKENS`].
    #[error("the chat template has {length} {what}, more than the {limit} allowed")]
    SourceTooLong {
        /// What there is too much of: bytes or tokens.
        what: &'static str,
        /// How much of it there is.
        length: usize,
        /// How much is allowed.
        limit: usize,
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
    /// The last message cannot be continued.
    #[error("the last message cannot be continued: {0}")]
    Prefill(&'static str),
    /// A message or variable cannot be handed to the template.
    #[error("the conversation cannot be given to the chat template: {0}")]
    Input(String),
    /// The thread that runs the template could not be had, or died.
    #[error("the chat template cannot be run: {0}")]
    NoThread(String),
}

/// What a render is given beside the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Ends the prompt where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Ends the prompt within the last message, right after its text, so that the model continues it (a prefill).
    /// Leave `add_generation_prompt` off then.
    pub continue_final_message: bool,
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
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts that the template sees as `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// [`TemplateError::SourceTooLong`] and [`TemplateError::Syntax`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        sandbox::check_source(source)?;
        let environment = sandbox::with_compile_stack(|| {
            let mut environment = environment();
            environment.add_template_owned(NAME, replace_generation_tags(source)).map_err(syntax_error)?;
            Ok(environment)
        })?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The prompt for `messages`.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] where the template itself objects to the conversation, and the other variants where
    /// it fails or runs into a limit.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        if options.continue_final_message {
            let (marked, text) = prefill::mark(messages)?;
            return prefill::cut(self.run(&marked, options)?, &text);
        }
        self.run(messages, options)
    }

    fn run(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        let budget = Budget::new(messages, options)?;
        // Everything that the template makes is dropped in there too.
        let output = sandbox::with_stack(budget.stack, || {
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(budget.steps));
            let template = environment.get_template(NAME).map_err(syntax_error)?;
            let mut output = BoundedOutput { text: Vec::new(), limit: budget.output };
            match template.render_captured_to(self.context(messages, options), &mut output) {
                Ok(_) => Ok(output.text),
                Err(error) => Err(run_error(error, budget)),
            }
        })?;
        // Text goes in as whole `str`s, so this cannot fail.
        String::from_utf8(output).map_err(|error| TemplateError::Input(error.to_string()))
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

fn run_error(error: minijinja::Error, budget: Budget) -> TemplateError {
    match error.kind() {
        ErrorKind::OutOfFuel => return TemplateError::TooManySteps { steps: budget.steps },
        ErrorKind::WriteFailure => return TemplateError::OutputTooLong { bytes: budget.output },
        _ => {}
    }
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
