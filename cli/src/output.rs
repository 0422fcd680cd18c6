//! Standard output for results, standard error for everything else, and progress bars.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::error::CliError;

/// Writes a result to standard output at once.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// As [`print`], for what is not text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CliError::stdout)
}

/// Writes a result as indented JSON.
pub(crate) fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}

/// Writes a line to standard error. Where that is closed there is nobody to tell.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A bar on standard error, which shows only on a terminal. `template` is indicatif's.
pub(crate) fn bar(len: u64, template: &str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(Some(len), target);
    // A template that does not parse is a mistake in this program; the default one does as well.
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Whether people look at standard error.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Bytes for people: `93.8 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// A count for people: `134.52 M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

/// Seconds or milliseconds for people: `1.25 s`, `83 ms`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.1} ms", seconds * 1e3) }
}

/// Rows as text columns, each as wide as its widest cell; numbers in the columns of `right` end flush.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let n = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            let gap = if c == 0 { "" } else { "  " };
            let cell = if right.contains(&c) { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            line.push_str(gap);
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(98_362_432), "93.81 MiB");
        assert_eq!(count(134_515_008), "134.52 M");
        assert_eq!(time(Duration::from_millis(1250)), "1.25 s");
        assert_eq!(time(Duration::from_micros(1250)), "1.2 ms");
    }

    #[test]
    fn columns_align_and_lines_end_clean() {
        let rows = vec![vec!["a".into(), "10".into()], vec!["bcd".into(), "7".into()]];
        assert_eq!(table(&rows, &[1]), "a    10\nbcd   7\n");
        assert_eq!(table(&rows, &[]), "a    10\nbcd  7\n");
    }
}
