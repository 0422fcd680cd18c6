//! The limits that keep an untrusted template from exhausting time, memory or the stack.
//!
//! minijinja counts steps (its fuel), but compiles chains of operators, and prints, compares and drops nested values,
//! by recursion that only the stack ends, and a stack overflow would end the process. So the source is limited in
//! tokens, and compiling and rendering run on a thread whose stack is large enough for what the limits allow. Unused
//! stack costs address space only.
//!
//! One hole is left. minijinja 3.1.0, the newest, charges fuel for the instruction and the items at the surface, but
//! not for what lies below, in three places:
//!
//! - `+` on lists keeps both sides and copies their items once 32 additions are nested, uncharged: `a = a + a` in a
//!   loop fills the memory at the 33rd turn.
//! - `==`, `<`, `in` and the like go through nested lists to their leaves: after `a = [a, a]` forty times, 2⁴⁰ of them.
//! - `~`, `string` and `join` write such a list before its text is charged.
//!
//! Such a template runs for ever and may fill the memory. It cannot be closed from outside: operators are instructions
//! that call no code of ours, lists are minijinja's own type, the syntax tree (behind its `unstable_machinery`) cannot
//! be changed once parsed, and a thread cannot be stopped. Filters and tests could be replaced by ones that count first,
//! but not the operators, so that would close nothing. What goes through `tojson`, is printed, or is looped over is
//! charged item by item.

use std::io;
use std::thread;

use super::{Message, RenderOptions, TemplateError};

/// The most tokens (words and single marks) in a template source. The largest known template has 4,800.
///
/// A chain such as `1 ~ 1 ~ 1 …` compiles in quadratic time, which at this length is still a few seconds.
pub const MAX_SOURCE_TOKENS: usize = 12_000;

/// The longest template source accepted, in bytes. The largest known template has 17 kB.
pub const MAX_SOURCE_BYTES: usize = 1 << 18;

/// Stack for compiling. The costliest token, an opening parenthesis in a `set`, takes under 4 kB.
const COMPILE_STACK: usize = 128 << 20;

/// Steps for any conversation; one step is an instruction or 64 bytes of new data. No known template takes 5,000 for a
/// conversation of a few messages.
const BASE_STEPS: u64 = 200_000;

/// Further steps for each message.
const STEPS_PER_MESSAGE: u64 = 1_000;

/// The most steps. Those for 4 MB of conversation.
const MAX_STEPS: u64 = 4_000_000;

/// Stack for rendering whatever the number of steps.
const BASE_STACK: usize = 32 << 20;

/// Stack for each step. A step can nest values a sixth of a level deeper; printing takes 1.6 kB for a level.
const STACK_PER_STEP: usize = 512;

/// Output for any conversation, in bytes.
const BASE_OUTPUT: usize = 1 << 20;

/// Output for each byte of conversation. Some templates write the tools more than once.
const OUTPUT_PER_BYTE: usize = 16;

/// What one render may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Instructions and units of 64 bytes of data.
    pub(super) steps: u64,
    /// Bytes of output.
    pub(super) output: usize,
    /// Bytes of stack.
    pub(super) stack: usize,
}

impl Budget {
    /// The budget for a conversation: in proportion to its size, which the template has no say in.
    pub(super) fn new(messages: &[Message], options: &RenderOptions) -> Result<Self, TemplateError> {
        let mut size = ByteCounter(0);
        serde_json::to_writer(&mut size, messages)
            .and_then(|()| serde_json::to_writer(&mut size, &options.tools))
            .and_then(|()| serde_json::to_writer(&mut size, &options.variables))
            .map_err(|error| TemplateError::Input(error.to_string()))?;
        let steps = BASE_STEPS
            .saturating_add(size.0 as u64)
            .saturating_add(STEPS_PER_MESSAGE.saturating_mul(messages.len() as u64))
            .min(MAX_STEPS);
        Ok(Self {
            steps,
            output: BASE_OUTPUT.saturating_add(OUTPUT_PER_BYTE.saturating_mul(size.0)),
            stack: BASE_STACK.saturating_add(STACK_PER_STEP.saturating_mul(steps as usize)),
        })
    }
}

/// Refuses a source that is too large to be compiled safely.
pub(super) fn check_source(source: &str) -> Result<(), TemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TemplateError::SourceTooLong {
            what: "bytes",
            length: source.len(),
            limit: MAX_SOURCE_BYTES,
        });
    }
    let tokens = count_tokens(source);
    if tokens > MAX_SOURCE_TOKENS {
        return Err(TemplateError::SourceTooLong {
            what: "tokens",
            length: tokens,
            limit: MAX_SOURCE_TOKENS,
        });
    }
    Ok(())
}

/// Runs of word characters, and other characters but white space, wherever they stand: at least as many as Jinja's
/// tokens.
fn count_tokens(source: &str) -> usize {
    let mut in_word = false;
    source
        .chars()
        .filter(|&c| {
            let was_in_word = in_word;
            in_word = c.is_alphanumeric() || c == '_';
            if in_word { !was_in_word } else { !c.is_whitespace() }
        })
        .count()
}

/// Runs `compile` with the stack that [`check_source`] relies on.
pub(super) fn with_compile_stack<T: Send>(
    compile: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    with_stack(COMPILE_STACK, compile)
}

/// Runs `work` on a thread of its own with a stack of `bytes`. A panic becomes an error.
pub(super) fn with_stack<T: Send>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(bytes)
            .spawn_scoped(scope, work)
            .map_err(|error| TemplateError::NoThread(error.to_string()))?
            .join()
            .unwrap_or_else(|_| Err(TemplateError::NoThread("the template engine panicked".to_owned())))
    })
}

/// Collects output and fails once there is more than `limit` bytes of it.
pub(super) struct BoundedOutput {
    pub(super) text: Vec<u8>,
    pub(super) limit: usize,
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
