//! Where the time of a run goes, as a table and as JSON.

use std::time::Duration;

use llamay_engine::Isa;
use llamay_engine::plan::{Bound, Ceilings, Cost, Profile};
use serde_json::{Value, json};

use super::measure::{Measured, Opened};
use crate::error::CliError;
use crate::output;

/// What lies between the steps: pages of the cache, angles of rotations, the logits' way out, the bench itself.
const BETWEEN: &str = "between steps";

/// The profile of a shape, and the ceilings to hold it against. Of each step the fastest repetition counts: a neighbour that
/// takes the CPU away for a while would otherwise show as a slow step.
pub(super) struct Profiled {
    pub(super) ceilings: Ceilings,
    pub(super) isa: Isa,
    profile: Profile,
    /// Time that belongs to no step, in the repetition that has the least of it.
    between: Duration,
}

/// What the machine can do with this case's threads and kernels.
pub(super) fn ceilings(opened: &Opened) -> Result<Ceilings, CliError> {
    llamay_cpu::probe::ceilings(opened.isa, opened.threads, opened.model.memory().weights)
        .map_err(|e| CliError::Failure(e.to_string()))
}

/// One kind of step.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) calls: u64,
    pub(super) seconds: f64,
    /// Of the run's time.
    pub(super) share: f64,
    pub(super) cost: Cost,
    pub(super) bound: Bound,
    /// The least time that the ceilings allow, out of the time taken; 1 is as fast as can be.
    pub(super) of_ceiling: f64,
}

impl Profiled {
    /// The first repetition, which took `time` without the counting.
    pub(super) fn new(ceilings: Ceilings, isa: Isa, profile: Profile, time: Duration) -> Profiled {
        let between = time.saturating_sub(profile.step_time());
        Profiled { ceilings, isa, profile, between }
    }

    /// Takes another repetition in.
    pub(super) fn add(&mut self, profile: &Profile, time: Duration) {
        self.between = self.between.min(time.saturating_sub(profile.step_time()));
        self.profile.keep_fastest(profile);
    }

    /// Time of all steps and of what lies between them.
    fn time(&self) -> Duration {
        self.profile.step_time() + self.between
    }

    fn row(&self, label: &str, calls: u64, time: Duration, cost: Cost) -> Row {
        let seconds = time.as_secs_f64();
        let (least, bound) = self.ceilings.least_seconds(&cost);
        let over = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let (share, of_ceiling) = (over(seconds, self.time().as_secs_f64()), over(least, seconds));
        Row { label: label.to_owned(), calls, seconds, share, cost, bound, of_ceiling }
    }

    /// The kinds of steps, the longest first.
    pub(super) fn rows(&self) -> Vec<Row> {
        let kinds = self.profile.by_kind();
        let mut rows: Vec<Row> = kinds.iter().map(|s| self.row(&s.label, s.calls, s.time, s.cost)).collect();
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        rows
    }

    /// The whole run: its least time is the sum of those of the steps, which wait for each other.
    fn total(&self) -> Row {
        let calls = self.profile.steps.iter().map(|s| s.calls).sum();
        let mut total = self.row("all", calls, self.time(), self.profile.cost());
        let least = self.profile.steps.iter().map(|s| self.ceilings.least_seconds(&s.cost).0);
        total.of_ceiling = least.sum::<f64>() / total.seconds.max(f64::MIN_POSITIVE);
        total
    }

    /// The field `profile` of a result.
    pub(super) fn json(&self) -> Value {
        let c = &self.ceilings;
        let row = |row: &Row| {
            json!({
                "step": row.label,
                "calls": row.calls,
                "seconds": row.seconds,
                "share": row.share,
                "weight_bytes": row.cost.weight_bytes,
                "cache_bytes": row.cost.cache_bytes,
                "activation_bytes": row.cost.activation_bytes,
                "int8_macs": row.cost.int8_macs,
                "f32_macs": row.cost.f32_macs,
                "bound": row.bound.name(),
                "of_ceiling": row.of_ceiling,
            })
        };
        json!({
            "isa": self.isa.name(),
            "ceilings": {
                "read_bytes_per_second": c.read,
                "read_set_bytes": c.read_set,
                "memory_bytes_per_second": c.memory,
                "int8_macs_per_second": c.int8_macs,
                "f32_macs_per_second": c.f32_macs,
            },
            "steps": self.rows().iter().map(row).collect::<Vec<_>>(),
            "between_steps_seconds": self.between.as_secs_f64(),
            "seconds": self.time().as_secs_f64(),
            "of_ceiling": self.total().of_ceiling,
        })
    }
}

/// A result as Markdown; the first of a case begins with its ceilings.
pub(super) fn section(result: &Measured, model: &str, with_ceilings: bool) -> String {
    let Some(profiled) = &result.profile else { return String::new() };
    let mut text = String::new();
    if with_ceilings {
        let threads = if result.threads == 1 { "thread" } else { "threads" };
        let isa = profiled.isa.name();
        text += &format!("## {model}, {isa}, {} {threads}\n\n", result.threads);
        text += &ceilings_table(&profiled.ceilings);
        text.push('\n');
    }
    let n_tokens = (result.shape.n_prompt + result.shape.n_gen) as f64;
    let fastest = result.samples.iter().min().map_or(0.0, Duration::as_secs_f64);
    let rate = n_tokens / fastest.max(f64::MIN_POSITIVE);
    let (name, n) = (result.shape.name(), result.samples.len());
    text += &format!("### {name}: {rate:.2} tokens/s\n\nThe fastest of {n}, as for each step by itself.\n\n");
    text += &steps_table(profiled);
    text.push('\n');
    text
}

fn ceilings_table(c: &Ceilings) -> String {
    let giga = |rate: f64| format!("{:.1}", rate / 1e9);
    table(
        &[
            vec!["ceiling".into(), "rate".into(), "unit".into()],
            vec![format!("reading {} over and over", output::bytes(c.read_set)), giga(c.read), "GB/s".into()],
            vec!["reading memory".into(), giga(c.memory), "GB/s".into()],
            vec!["products of bytes".into(), giga(c.int8_macs), "GMAC/s".into()],
            vec!["products of floats".into(), giga(c.f32_macs), "GMAC/s".into()],
        ],
        &[1],
    )
}

fn steps_table(profiled: &Profiled) -> String {
    let names = ["step", "calls", "ms", "time", "GB/s", "GMAC/s", "MAC/byte", "bound by", "of bound"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    let cells = |row: &Row| {
        let rate = |n: u64| {
            if n == 0 { String::new() } else { format!("{:.1}", n as f64 / row.seconds.max(1e-12) / 1e9) }
        };
        vec![
            row.label.clone(),
            row.calls.to_string(),
            format!("{:.3}", row.seconds * 1e3),
            percent(row.share),
            rate(row.cost.bytes()),
            rate(row.cost.macs()),
            format!("{:.2}", row.cost.intensity()),
            row.bound.name().to_owned(),
            percent(row.of_ceiling),
        ]
    };
    rows.extend(profiled.rows().iter().map(cells));
    let between = profiled.row(BETWEEN, 0, profiled.between, Cost::default());
    let mut line = vec![String::new(); names.len()];
    line[0] = between.label;
    line[2] = format!("{:.3}", between.seconds * 1e3);
    line[3] = percent(between.share);
    rows.push(line);
    let mut total = cells(&profiled.total());
    total[7] = String::new();
    rows.push(total);
    table(&rows, &[1, 2, 3, 4, 5, 6, 8])
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A Markdown table whose first row is the header; the columns of `right` end flush.
fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let n = rows.first().map_or(0, Vec::len);
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..n).map(width).collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (c, cell) in row.iter().enumerate() {
            // `|` would end the cell.
            let cell = cell.replace('|', "/");
            let w = widths[c];
            text += &if right.contains(&c) { format!("| {cell:>w$} ") } else { format!("| {cell:<w$} ") };
        }
        text += "|\n";
        if i == 0 {
            for (c, w) in widths.iter().enumerate() {
                let dashes = "-".repeat(*w);
                text += &if right.contains(&c) { format!("| {dashes}:") } else { format!("| {dashes} ") };
            }
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use llamay_engine::plan::StepProfile;

    use super::*;

    /// A profile of two kinds of steps, with 10 ms in steps out of 16.
    pub(in super::super) fn example() -> Profiled {
        let step = |label: &str, ms, weight_bytes, int8_macs| StepProfile {
            label: label.to_owned(),
            calls: 3,
            time: Duration::from_millis(ms),
            cost: Cost { weight_bytes, int8_macs, ..Cost::default() },
        };
        let ceilings = Ceilings { read: 1e9, read_set: 1 << 20, memory: 5e8, int8_macs: 1e9, f32_macs: 1e8 };
        let steps =
            vec![step("linear a|b <&> \"Q\"", 2, 1_000_000, 0), step("linear c", 8, 1_000, 4_000_000)];
        let profile = Profile { steps, counting: Duration::ZERO };
        Profiled::new(ceilings, Isa::Portable, profile, Duration::from_millis(16))
    }

    #[test]
    fn shares_are_of_the_whole_and_of_the_ceiling_that_binds() {
        let profiled = example();
        let [long, short] = &profiled.rows()[..] else { panic!("two kinds") };
        assert_eq!((long.label.as_str(), long.bound, short.bound), ("linear c", Bound::Int8, Bound::Read));
        for (value, wanted) in
            [(long.share, 0.5), (long.of_ceiling, 0.5), (short.share, 0.125), (short.of_ceiling, 0.5)]
        {
            assert!((value - wanted).abs() < 1e-9, "{value} is not {wanted}");
        }
        assert_eq!(profiled.between, Duration::from_millis(6));
        assert!((profiled.total().of_ceiling - 5.0 / 16.0).abs() < 1e-9);
    }

    #[test]
    fn a_disturbed_repetition_changes_nothing() {
        let mut profiled = example();
        let mut slow = profiled.profile.clone();
        slow.steps.iter_mut().for_each(|s| s.time *= 3);
        profiled.add(&slow, Duration::from_millis(40));
        assert_eq!(profiled.time(), example().time());
        slow.steps[1].time = Duration::from_millis(5);
        profiled.add(&slow, slow.step_time());
        assert_eq!(profiled.time(), Duration::from_millis(2 + 5));
    }

    #[test]
    fn tables_have_cells_in_every_column() {
        let text = steps_table(&example());
        let bars: Vec<usize> = text.lines().map(|l| l.matches('|').count()).collect();
        assert_eq!(bars, [10; 6], "{text}");
        let widths: Vec<usize> = text.lines().map(|l| l.chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
    }
}
