//! The `tojson` filter as transformers defines it: Python's `json.dumps` without escaping for HTML or ASCII.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deeper nesting than this is refused, before the recursion can exhaust the stack.
const MAX_DEPTH: usize = 128;

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;

    let indent = match indent {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            // A template has no business with an indent beyond a line's width.
            None => " ".repeat(usize::try_from(indent)?.min(80)),
        }),
    };
    let (between_items, after_key) = match separators {
        Some(separators) => {
            let text = |index| separators.get_item_by_index(index).map(|separator| separator.to_string());
            (text(0)?, text(1)?)
        }
        // As json.dumps: a line break after the comma takes the space's place.
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };

    let mut writer = Writer {
        state,
        out: String::new(),
        charged: 0,
        ensure_ascii,
        indent,
        between_items,
        after_key,
        sort_keys,
    };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

struct Writer<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    out: String,
    /// Bytes of `out` that have been paid for with fuel.
    charged: usize,
    ensure_ascii: bool,
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        self.state.consume_fuel(1 + (self.out.len() - self.charged) as u64 / 64)?;
        self.charged = self.out.len();
        match value.kind() {
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.out.push_str(&scalar(value)),
            ValueKind::Seq => {
                let items = value.try_iter()?;
                self.container('[', ']', items, depth, |writer, item| writer.value(&item, depth + 1))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.container('{', '}', keys.into_iter(), depth, |writer, key| {
                    match key.kind() {
                        ValueKind::String => writer.string(key.as_str().unwrap_or_default()),
                        ValueKind::None | ValueKind::Bool | ValueKind::Number => writer.string(&scalar(&key)),
                        kind => return Err(invalid(format!("tojson: a key cannot be of type {kind}"))),
                    }
                    writer.out.push_str(&writer.after_key);
                    writer.value(&value.get_item(&key)?, depth + 1)
                })?;
            }
            kind => return Err(invalid(format!("tojson: a value of type {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn container<T>(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = T>,
        depth: usize,
        mut write: impl FnMut(&mut Self, T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if !empty {
                self.out.push_str(&self.between_items);
            }
            empty = false;
            self.new_line(depth + 1);
            write(self, item)?;
        }
        if !empty {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // Python leaves DEL alone unless it must keep to ASCII, where it is ASCII anyway.
                c if c < ' ' || (self.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string does not fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// The JSON form of `none`, a boolean or a number.
fn scalar(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        _ if value.is_integer() => value.to_string(),
        _ => f64::try_from(value.clone()).map_or_else(|_| value.to_string(), python_float),
    }
}

/// A float as Python's `repr` writes it, which `json.dumps` uses: the shortest digits that read back the same, with an
/// exponent below 1e-4 and from 1e16 on.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    // Rust writes 1e-7 and 1.5e16 where Python writes 1e-07 and 1.5e+16.
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        // The right-hand sides are what CPython's json.dumps prints.
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (9007199254740993.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }
}
