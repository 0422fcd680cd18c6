//! Results as llama-bench prints them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use llamay_engine::KvType;
use llamay_engine::gguf::{Gguf, TensorType};
use serde_json::{Map, Value, json};

use super::Format;
use super::measure::{Case, Measured};
use super::profile;
use crate::error::CliError;
use crate::output;

/// Results in one of the formats; all but [`Format::Json`] are printed as they come.
pub(super) struct Report {
    format: Format,
    rows: Vec<Map<String, Value>>,
    /// The model and the case of the last row.
    case: Option<(PathBuf, Case)>,
}

impl Report {
    pub(super) fn new(format: Format) -> Report {
        Report { format, rows: Vec::new(), case: None }
    }

    pub(super) fn add(&mut self, result: Measured) -> Result<(), CliError> {
        let row = fields(&result);
        let first = self.rows.is_empty();
        match self.format {
            Format::Json => {}
            Format::Jsonl => output::print(&format!("{}\n", Value::Object(row.clone())))?,
            Format::Csv => {
                if first {
                    let header: Vec<&str> = csv_fields(&row).map(|(name, _)| name.as_str()).collect();
                    output::print(&format!("{}\n", header.join(",")))?;
                }
                let cells: Vec<String> = csv_fields(&row).map(|(_, value)| csv_cell(value)).collect();
                output::print(&format!("{}\n", cells.join(",")))?;
            }
            Format::Md if result.profile.is_some() => {
                let case = (result.path.clone(), result.case);
                let seen = self.case.replace(case.clone()).is_some_and(|last| last == case);
                output::print(&profile::section(&result, &model_type(result.model.gguf()), !seen))?;
            }
            Format::Md => {
                if first {
                    output::print(&markdown_header())?;
                }
                output::print(&markdown_row(&result, &row))?;
            }
        }
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), CliError> {
        match self.format {
            Format::Json => {
                output::print_json(&Value::Array(self.rows.into_iter().map(Value::Object).collect()))
            }
            Format::Md | Format::Jsonl | Format::Csv => Ok(()),
        }
    }
}

/// Mean and standard deviation (of a sample) of some numbers.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// llama-bench's fields, in its order.
fn fields(result: &Measured) -> Map<String, Value> {
    let gguf = result.model.gguf();
    let ns: Vec<f64> = result.samples.iter().map(|s| s.as_nanos() as f64).collect();
    let n_tokens = (result.shape.n_prompt + result.shape.n_gen) as f64;
    let ts: Vec<f64> = ns.iter().map(|ns| n_tokens * 1e9 / ns).collect();
    let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) = (mean_and_deviation(&ns), mean_and_deviation(&ts));
    let kv = KvType::from(result.case.kv).name();
    let object = json!({
        "llamay_version": env!("CARGO_PKG_VERSION"),
        "cpu_info": cpu_info(),
        "gpu_info": result.model.device().unwrap_or_default(),
        "backends": backend(result),
        "placement": result.model.placement(),
        "model_filename": result.path.display().to_string(),
        "model_type": model_type(gguf),
        "model_size": gguf.tensors().iter().filter_map(|t| t.n_bytes()).sum::<u64>(),
        "model_n_params": gguf.tensors().iter().map(|t| t.n_elements()).sum::<u64>(),
        "n_batch": result.case.n_batch,
        "n_ubatch": result.case.n_ubatch,
        "n_threads": result.threads,
        "type_k": kv,
        "type_v": kv,
        "n_gpu_layers": 0,
        "n_prompt": result.shape.n_prompt,
        "n_gen": result.shape.n_gen,
        "n_depth": result.shape.n_depth,
        "test_time": utc(result.began),
        "avg_ns": avg_ns.round() as u64,
        "stddev_ns": stddev_ns.round() as u64,
        "avg_ts": avg_ts,
        "stddev_ts": stddev_ts,
        "samples_ns": ns.iter().map(|ns| *ns as u64).collect::<Vec<u64>>(),
        "samples_ts": ts,
    });
    let mut fields = match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    if let Some(profiled) = &result.profile {
        fields.insert("profile".to_owned(), profiled.json());
    }
    fields
}

/// The fields of CSV: as llama-bench, all but the samples; and no profile.
fn csv_fields(row: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    row.iter().filter(|(_, value)| !value.is_array() && !value.is_object())
}

fn csv_cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Column names and widths; the last two columns end flush.
const COLUMNS: [(&str, usize); 7] =
    [("model", 30), ("size", 10), ("params", 10), ("backend", 10), ("threads", 7), ("test", 20), ("t/s", 20)];

fn markdown(cells: &[String]) -> String {
    let cell = |(i, (_, width)): (usize, &(&str, usize))| {
        let text = &cells[i];
        if i == 0 || i == 3 { format!(" {text:<width$} ") } else { format!(" {text:>width$} ") }
    };
    let cells: Vec<String> = COLUMNS.iter().enumerate().map(cell).collect();
    format!("|{}|\n", cells.join("|"))
}

fn markdown_header() -> String {
    let names: Vec<String> = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rule = |(i, (_, width)): (usize, &(&str, usize))| {
        let dashes = "-".repeat(*width);
        if i == 0 || i == 3 { format!(" {dashes} ") } else { format!(" {dashes}:") }
    };
    let rules: Vec<String> = COLUMNS.iter().enumerate().map(rule).collect();
    format!("{}|{}|\n", markdown(&names), rules.join("|"))
}

/// What runs the model: the GPU, or the CPU where none runs a part.
fn backend(result: &Measured) -> &str {
    result.model.device().unwrap_or("CPU")
}

fn markdown_row(result: &Measured, row: &Map<String, Value>) -> String {
    let number = |name: &str| row.get(name).and_then(Value::as_u64).unwrap_or_default();
    let float = |name: &str| row.get(name).and_then(Value::as_f64).unwrap_or_default();
    markdown(&[
        model_type(result.model.gguf()),
        output::bytes(number("model_size")),
        output::count(number("model_n_params")),
        backend(result).to_owned(),
        result.threads.to_string(),
        test_name(result),
        format!("{:.2} ± {:.2}", float("avg_ts"), float("stddev_ts")),
    ])
}

/// The shape's name, and the cache's type where it is not the usual one.
fn test_name(result: &Measured) -> String {
    let name = result.shape.name();
    match KvType::from(result.case.kv) {
        KvType::F16 => name,
        kv => format!("{name} {}", kv.name()),
    }
}

/// A model's architecture, size and most common format: `llama 135M Q4_1`.
pub(super) fn model_type(gguf: &Gguf) -> String {
    let metadata = gguf.metadata();
    let text = |key: &str| metadata.str(key).ok().flatten();
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for tensor in gguf.tensors().iter().filter(|t| t.dims.len() > 1) {
        if let TensorType::Known(format) = tensor.kind {
            *bytes.entry(format.to_string()).or_default() += tensor.n_bytes().unwrap_or(0);
        }
    }
    let format = bytes.into_iter().max_by_key(|(_, n)| *n).map(|(format, _)| format);
    let parts = [text("general.architecture"), text("general.size_label"), format.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The CPU's name, as Linux tells it; elsewhere the kind of CPU.
fn cpu_info() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// A time since the Unix epoch as `2025-01-31T12:00:00Z`.
fn utc(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one; 719 468 days lead from 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0]), (2.0, 0.0));
        let (mean, deviation) = mean_and_deviation(&[1.0, 2.0, 3.0]);
        assert_eq!((mean, deviation), (2.0, 1.0));
    }

    #[test]
    fn table_rows_are_as_wide_as_the_header() {
        let header = markdown_header();
        let widths: Vec<usize> = header.lines().map(str::len).collect();
        assert_eq!(widths[0], widths[1], "{header}");
    }
}
