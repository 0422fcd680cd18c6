//! One message of a conversation, as a template sees it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation. The JSON form is that of the OpenAI chat API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or whatever else the template knows.
    pub role: String,
    /// What is said: a text, or a list of parts where the template takes them. `None` leaves the field out, which a
    /// template can tell from JSON's `null`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub content: Option<Value>,
    /// Further fields: `tool_calls`, `tool_call_id`, `name`, `reasoning_content` and the like.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message that is just text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(Value::String(content.into())), extra: Map::new() }
    }

    /// The same message with one more field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(field.into(), value.into());
        self
    }
}

/// Keeps an explicit `null` apart from an absent field, which serde's `Option` would merge.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
