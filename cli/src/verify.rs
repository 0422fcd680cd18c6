//! `llamay verify`: the promise of equal bits, checked on this machine.

use std::path::PathBuf;

use llamay_engine::gguf::Gguf;
use llamay_engine::tokenizer::EncodeOptions;
use llamay_engine::verify::{Check, Mode, kernel_sets, verify};
use llamay_engine::{Model, Options, available_threads};
use serde_json::json;

use crate::args::{self, Adapters, Kv};
use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
Every kernel set of this machine, with every number of threads, feeds the same prompt whole, in chunks, token by token
and beside another sequence; the logits of every position have to be the same bits as those of the portable reference.
The exit code is 1 if any differ.

Example:
  llamay verify model.gguf";

/// Check that every kernel set and thread count gives the same bits
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file
    model: PathBuf,
    /// Tokens of the prompt
    #[arg(short = 'n', long, value_name = "N", value_parser = args::positive(), default_value_t = 32)]
    n_prompt: usize,
    /// Try 1 up to this many threads [default: the fast cores that affinity and CPU quota give]
    #[arg(short = 't', long, value_name = "N", value_parser = args::threads())]
    threads: Option<usize>,
    /// Element type of the KV cache
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    kv_type: Kv,
    #[command(flatten)]
    device: args::Device,
    #[command(flatten)]
    adapters: Adapters,
    /// Print one object: equal, n_prompt, checks (kernels, threads, mode, equal, difference)
    #[arg(long)]
    json: bool,
}

/// Varied enough to reach digits, punctuation, other scripts and byte fallback.
const TEXT: &str = "The Eiffel Tower, built 1887–1889, is 330 m tall. fn main() { println!(\"{}\", x * 2); } Ünïcödé: 你好, \
    мир, 🙂! Every machine that reads this gives the same bits, whatever its kernels.\n";

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let threads = args.threads.unwrap_or_else(available_threads);
    let options = Options {
        context: Some(args.n_prompt),
        batch: Some(args.n_prompt),
        kv: args.kv_type.into(),
        adapters: args.adapters.lora.clone(),
        ..args.device.choose(Options::from_env()?)
    };
    for isa in kernel_sets(&options) {
        // The engine then runs a lesser set in its place.
        if let Err(what) = isa.self_test() {
            output::note(&format!("warning: the {} kernels are not tried: {what}", isa.name()));
        }
    }
    // The device's checks, if there is one, come on top.
    let n_checks = kernel_sets(&options).len() * threads * Mode::ALL.len();
    let bar = output::bar(n_checks as u64, "[{bar:30}] {pos}/{len} {msg}");
    let open = || Ok(Gguf::open(&args.model)?);
    let prompt = |model: &Model| prompt(model, args.n_prompt);
    let checks = verify(&open, &prompt, &options, threads, &mut |check: &Check| {
        bar.inc(1);
        bar.set_message(format!("{}, {} threads", check.kernels, check.threads));
    });
    bar.finish_and_clear();
    let checks = checks?;

    let n_different = checks.iter().filter(|c| c.difference.is_some()).count();
    if args.json {
        output::print_json(&as_json(&checks, args.n_prompt))?;
    } else {
        output::print(&as_table(&checks))?;
    }
    match n_different {
        0 => Ok(()),
        n => Err(CliError::Failure(format!("{n} of {} runs differ from the reference", checks.len()))),
    }
}

/// The first `n` tokens of the text, said as often as needed.
fn prompt(model: &Model, n: usize) -> Vec<u32> {
    let tokens = model.tokenizer().encode(TEXT, EncodeOptions { add_special: true, parse_special: false });
    tokens.into_iter().cycle().take(n).collect()
}

fn as_json(checks: &[Check], n_prompt: usize) -> serde_json::Value {
    let rows = checks.iter().map(|c| {
        let difference =
            c.difference.map(|(position, token)| json!({ "position": position, "token": token }));
        json!({
            "kernels": c.kernels,
            "threads": c.threads,
            "mode": c.mode.name(),
            "equal": c.difference.is_none(),
            "difference": difference,
        })
    });
    let equal = checks.iter().all(|c| c.difference.is_none());
    json!({ "equal": equal, "n_prompt": n_prompt, "checks": rows.collect::<Vec<_>>() })
}

/// A row for each kernel set and thread count, a column for each mode.
fn as_table(checks: &[Check]) -> String {
    let mut rows = vec![vec!["kernels".to_owned(), "threads".to_owned()]];
    rows[0].extend(Mode::ALL.iter().map(|m| m.name().to_owned()));
    for (i, check) in checks.iter().enumerate() {
        if i == 0 || (&checks[i - 1].kernels, checks[i - 1].threads) != (&check.kernels, check.threads) {
            rows.push(vec![check.kernels.clone(), check.threads.to_string()]);
        }
        let cell = match check.difference {
            None if i == 0 => "reference".to_owned(),
            None => "equal".to_owned(),
            Some((position, token)) => format!("differs at position {position}, token {token}"),
        };
        if let Some(row) = rows.last_mut() {
            row.push(cell);
        }
    }
    output::table(&rows, &[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kernels: &str, mode: Mode, difference: Option<(usize, usize)>) -> Check {
        Check { kernels: kernels.to_owned(), threads: 1, mode, difference }
    }

    #[test]
    fn a_difference_shows_in_both_forms() {
        let checks = [
            check("portable", Mode::Whole, None),
            check("portable", Mode::Chunked, None),
            check("avx2", Mode::Whole, Some((3, 17))),
        ];
        let table = as_table(&checks);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(
            table.contains("reference") && table.contains("equal") && table.contains("position 3, token 17"),
            "{table}"
        );
        let json = as_json(&checks, 8);
        assert_eq!(json["equal"], false);
        assert_eq!(json["checks"][2]["difference"]["token"], 17);
    }
}
