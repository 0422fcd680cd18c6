//! A writer of SVG, as much of it as charts need.
//!
//! Source: W3C, "Scalable Vector Graphics (SVG) 1.1"; its text is XML 1.0.

use std::fmt::Write;

/// A drawing that is being written.
pub(super) struct Svg {
    text: String,
    /// Elements that are open, from the outermost.
    open: Vec<&'static str>,
}

/// Attributes of an element, by name.
type Attributes<'a> = &'a [(&'a str, &'a str)];

impl Svg {
    /// A drawing of some size in pixels, with a style sheet.
    pub(super) fn new(width: f64, height: f64, style: &str) -> Svg {
        let mut svg = Svg { text: String::new(), open: Vec::new() };
        let (w, h) = (number(width), number(height));
        svg.begin(
            "svg",
            &[
                ("xmlns", "http://www.w3.org/2000/svg"),
                ("viewBox", &format!("0 0 {w} {h}")),
                ("width", &w),
                ("height", &h),
                ("role", "img"),
            ],
        );
        svg.leaf("style", &[], style);
        svg
    }

    /// Opens an element.
    pub(super) fn begin(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.tag(name, attributes);
        self.text.push_str(">\n");
        self.open.push(name);
    }

    /// Closes the element that was opened last.
    pub(super) fn end(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = writeln!(self.text, "</{name}>");
        }
    }

    /// An element that holds nothing but text.
    pub(super) fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.tag(name, attributes);
        let _ = writeln!(self.text, ">{}</{name}>", escape(text));
    }

    /// A line from one point to another.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.leaf("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)], "");
    }

    /// A line of text; `anchor` is `start`, `middle` or `end`.
    pub(super) fn label(&mut self, class: &str, anchor: &str, at: (f64, f64), text: &str) {
        let [x, y] = [at.0, at.1].map(number);
        self.leaf("text", &[("class", class), ("text-anchor", anchor), ("x", &x), ("y", &y)], text);
    }

    /// The whole drawing.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text
    }

    fn tag(&mut self, name: &str, attributes: Attributes<'_>) {
        let _ = write!(self.text, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"{}\"", escape(value));
        }
    }
}

/// A coordinate, to a tenth of a pixel.
pub(super) fn number(x: f64) -> String {
    if x.is_finite() { format!("{x:.1}") } else { "0".to_owned() }
}

/// Text as XML takes it: markup escaped, and in place of what XML has no way to write the replacement character.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(c),
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_well_formed_and_comes_back() {
        let odd = "a<b>&\"c'\u{1b}[0m\u{fffe}é🙂";
        let mut svg = Svg::new(10.0, f64::NAN, "text { fill: red }");
        svg.begin("g", &[("id", odd)]);
        svg.label("x", "start", (1.0, 2.0), odd);
        svg.line("y", (0.0, 0.0), (1.0, f64::INFINITY));
        let text = svg.finish();
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let wanted = "a<b>&\"c'\u{fffd}[0m\u{fffd}é🙂";
        let label = document.descendants().find(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "text")));
        assert_eq!(label.and_then(|n| n.text()), Some(wanted));
        assert!(document.descendants().any(|n| n.attribute("id") == Some(wanted)));
    }
}
