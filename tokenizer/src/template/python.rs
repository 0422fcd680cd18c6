//! What templates expect of Python: methods on strings, lists and dictionaries, and what counts as a sequence.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, State, Value};

/// Calls `method` of `value`. Methods that change their value, such as `append`, are missing on purpose: transformers
/// runs templates in a sandbox that forbids them.
pub(super) fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match method {
            "removeprefix" => {
                let (prefix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
            }
            "removesuffix" => {
                let (suffix,): (&str,) = from_args(args)?;
                return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
            }
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// `is iterable`: whether Python's `iter` takes the value. Unlike minijinja's test it says no to `none`.
pub(super) fn is_iterable(value: &Value) -> bool {
    value.is_undefined() || is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// `is sequence`: whether the value has a length and items. Unlike minijinja's test it counts strings and mappings.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map) || value.is_undefined()
}
