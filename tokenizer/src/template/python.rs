//! Python's methods on strings, lists and dictionaries, which templates call freely.

use minijinja::value::from_args;
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
