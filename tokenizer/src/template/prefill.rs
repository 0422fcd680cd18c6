//! Ending a prompt within its last message, so that the model goes on with it.
//!
//! Templates close every message, so the message is rendered with a mark after its text and the prompt is cut at the
//! mark. This is what transformers does for `continue_final_message`.

use serde_json::Value;

use super::{Message, TemplateError};

/// The space tells whether the template trims messages.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The messages with a mark after the last one's text, and that text.
pub(super) fn mark(messages: &[Message]) -> Result<(Vec<Message>, String), TemplateError> {
    let mut marked = messages.to_vec();
    let last = marked.last_mut().ok_or(TemplateError::Prefill("there is none"))?;
    let text = match &mut last.content {
        Some(Value::String(text)) => Some(text),
        // Of a message in parts, the last that has text.
        Some(Value::Array(parts)) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    let text = text.ok_or(TemplateError::Prefill("it has no text"))?;
    let original = text.clone();
    text.push_str(MARK);
    Ok((marked, original))
}

/// The prompt up to the mark.
pub(super) fn cut(mut prompt: String, text: &str) -> Result<String, TemplateError> {
    let missing = TemplateError::Prefill("the chat template changes its text or leaves it out");
    let Some(end) = prompt.rfind(MARK.trim_end()) else { return Err(missing) };
    if !prompt.contains(text.trim()) {
        return Err(missing);
    }
    let is_trimmed = !prompt[end..].starts_with(MARK);
    prompt.truncate(end);
    if is_trimmed {
        prompt.truncate(prompt.trim_end().len());
    }
    Ok(prompt)
}
