//! `llamay bench`: tokens a second, with the shapes, flags and JSON fields of llama-bench.

mod measure;
mod profile;
mod report;
mod roofline;
mod svg;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::args::{self, Adapters, Kv};
use crate::error::CliError;
use crate::output;
use measure::Case;

const AFTER_HELP: &str = "\
Every option of a case may be a list, separated by commas; all combinations are timed. Each shape runs once unseen
before it is timed. Times leave out loading and turning text into tokens. The fields of -o json are llama-bench's.

--profile measures what the machine can do (reading memory, products of bytes and of floats), then shows for each kind of
step how long it took in the fastest repetition, what it moved and multiplied, and how close to the limit that is.

Examples:
  llamay bench model.gguf -p 512 -n 128 -t 1,2 -r 5
  llamay bench model.gguf --profile --svg roofline.svg";

/// Time a model: tokens a second of prompts and of generation
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Models, GGUF files
    #[arg(value_name = "MODEL", required_unless_present = "model")]
    models: Vec<PathBuf>,
    /// A model, as llama-bench takes it; may be repeated
    #[arg(short = 'm', long, value_name = "MODEL")]
    model: Vec<PathBuf>,
    /// Lengths of prompts to time; 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512", help_heading = CASES)]
    n_prompt: Vec<usize>,
    /// Numbers of tokens to generate, one by one; 0 for none
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "128", help_heading = CASES)]
    n_gen: Vec<usize>,
    /// A prompt and a generation timed together, `PROMPT,GEN`; may be repeated (also: -pg)
    #[arg(long, value_name = "N,N", value_parser = pair, help_heading = CASES)]
    pg: Vec<(usize, usize)>,
    /// Tokens that the context holds before the timing begins
    #[arg(short = 'd', long, value_name = "N", value_delimiter = ',', default_value = "0", help_heading = CASES)]
    n_depth: Vec<usize>,
    /// Threads [default: the fast cores that affinity and CPU quota give]
    #[arg(
        short = 't', long, value_name = "N", value_delimiter = ',', value_parser = args::threads(),
        help_heading = CASES
    )]
    threads: Vec<usize>,
    /// Tokens of a prompt that are handed over at once
    #[arg(
        short = 'b', long, value_name = "N", value_delimiter = ',', value_parser = args::positive(),
        default_value = "2048", help_heading = CASES
    )]
    batch_size: Vec<usize>,
    /// Tokens of a prompt that are computed in one go, at most the batch size (also: -ub)
    #[arg(
        long, value_name = "N", value_delimiter = ',', value_parser = args::positive(), default_value = "512",
        help_heading = CASES
    )]
    ubatch_size: Vec<usize>,
    /// Element types of the KV cache
    #[arg(long, value_name = "TYPE", value_delimiter = ',', default_value = "f16", help_heading = CASES)]
    kv_type: Vec<Kv>,
    #[command(flatten)]
    device: args::Device,
    #[command(flatten)]
    adapters: Adapters,
    /// Times that each case is timed
    #[arg(short = 'r', long, value_name = "N", value_parser = args::positive(), default_value_t = 5)]
    repetitions: usize,
    /// Show where the time goes and how close each kind of step is to what the machine can do
    #[arg(long)]
    profile: bool,
    /// Draw the profile as a roofline chart into this file
    #[arg(long, value_name = "FILE", requires = "profile")]
    svg: Option<PathBuf>,
    /// How to print the results; jsonl is an object a line
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "md")]
    output: Format,
    /// The same as -o json
    #[arg(long)]
    json: bool,
}

const CASES: &str = "Cases (lists)";

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Md,
    Json,
    Jsonl,
    Csv,
}

/// Turns llama-bench's long names with one dash, which clap does not know, into ones with two.
pub(crate) fn long_names(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|command| command == "bench") {
        for arg in args.iter_mut().skip(2) {
            match arg.to_str() {
                Some("-pg") => *arg = "--pg".into(),
                Some("-ub") => *arg = "--ubatch-size".into(),
                Some("-ngl" | "--n-gpu-layers") => *arg = "--gpu-layers".into(),
                _ => {}
            }
        }
    }
    args
}

fn pair(text: &str) -> Result<(usize, usize), String> {
    let parse = || {
        let (prompt, generated) = text.split_once(',')?;
        Some((prompt.trim().parse().ok()?, generated.trim().parse().ok()?))
    };
    parse().ok_or_else(|| "two numbers with a comma between are wanted, such as 512,128".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let shapes = shapes(args);
    if shapes.is_empty() {
        return Err(CliError::Usage("there is nothing to time: give -p, -n or --pg above 0".to_owned()));
    }
    if let Some(folder) = args.svg.as_ref().and_then(|svg| svg.parent())
        && !folder.as_os_str().is_empty()
        && !folder.is_dir()
    {
        return Err(CliError::Failure(format!("{} is not a folder to put the chart in", folder.display())));
    }
    let format = if args.json { Format::Json } else { args.output };
    let mut report = report::Report::new(format);
    let n_cases = cases(args).len() * shapes.len() * (args.models.len() + args.model.len());
    let mut chart = roofline::Chart::default();
    let bar = output::bar((n_cases * args.repetitions) as u64, "[{bar:30}] {pos}/{len} {msg}");
    for path in args.models.iter().chain(&args.model) {
        for case in cases(args) {
            let opened = measure::open(path, case, &shapes, &args.device, &args.adapters)?;
            if args.profile && opened.model.device().is_some() {
                let why = "steps are timed on the CPU alone; give --device off to profile there";
                return Err(CliError::Failure(why.to_owned()));
            }
            bar.set_message("what the machine can do");
            let ceilings = args.profile.then(|| profile::ceilings(&opened)).transpose()?;
            chart.begin(&opened);
            for shape in &shapes {
                bar.set_message(shape.name());
                let result =
                    measure::measure(&opened, case, *shape, args.repetitions, ceilings, &|| bar.inc(1))?;
                chart.add(&result);
                bar.suspend(|| report.add(result))?;
            }
        }
    }
    bar.finish_and_clear();
    report.finish()?;
    let Some(path) = &args.svg else { return Ok(()) };
    let failed = |e| CliError::Failure(format!("{} cannot be written: {e}", path.display()));
    std::fs::write(path, chart.draw()).map_err(failed)
}

/// What is fed and timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
}

impl Shape {
    /// The name in llama-bench's tables: `pp512`, `tg128 @ d1024`.
    fn name(&self) -> String {
        let test = match (self.n_prompt, self.n_gen) {
            (prompt, 0) => format!("pp{prompt}"),
            (0, generated) => format!("tg{generated}"),
            (prompt, generated) => format!("pp{prompt}+tg{generated}"),
        };
        if self.n_depth == 0 { test } else { format!("{test} @ d{}", self.n_depth) }
    }

    /// Positions that it takes.
    fn context(&self) -> usize {
        self.n_prompt.saturating_add(self.n_gen).saturating_add(self.n_depth)
    }
}

fn shapes(args: &Args) -> Vec<Shape> {
    let prompts = args.n_prompt.iter().map(|n| (*n, 0));
    let generations = args.n_gen.iter().map(|n| (0, *n));
    let tests: Vec<_> =
        prompts.chain(generations).chain(args.pg.iter().copied()).filter(|t| *t != (0, 0)).collect();
    let shape = |n_depth: usize| {
        move |(n_prompt, n_gen): &(usize, usize)| Shape { n_prompt: *n_prompt, n_gen: *n_gen, n_depth }
    };
    args.n_depth.iter().flat_map(|depth| tests.iter().map(shape(*depth))).collect()
}

/// All combinations of the ways to run a shape.
fn cases(args: &Args) -> Vec<Case> {
    let threads: Vec<Option<usize>> =
        if args.threads.is_empty() { vec![None] } else { args.threads.iter().copied().map(Some).collect() };
    let mut cases = Vec::new();
    for n_batch in &args.batch_size {
        for n_ubatch in &args.ubatch_size {
            for kv in &args.kv_type {
                for threads in &threads {
                    cases.push(Case { n_batch: *n_batch, n_ubatch: *n_ubatch, kv: *kv, threads: *threads });
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(line: &str) -> Args {
        let words = ["llamay", "bench"].into_iter().chain(line.split(' ')).map(OsString::from);
        let mut words = long_names(words);
        words.remove(1);
        Only::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args
    }

    #[test]
    fn the_defaults_are_those_of_llama_bench() {
        let args = parsed("-m x");
        let names: Vec<String> = shapes(&args).iter().map(Shape::name).collect();
        assert_eq!(names, ["pp512", "tg128"]);
        assert_eq!((args.repetitions, args.output), (5, Format::Md));
        let case = Case { n_batch: 2048, n_ubatch: 512, kv: Kv::F16, threads: None };
        assert_eq!(cases(&args), [case]);
    }

    #[test]
    fn lists_multiply() {
        let args = parsed("x -p 0,16 -n 0 -d 0,8 -pg 4,2 -t 1,2 -ub 16,32 --kv-type f16,f32");
        let names: Vec<String> = shapes(&args).iter().map(Shape::name).collect();
        assert_eq!(names, ["pp16", "pp4+tg2", "pp16 @ d8", "pp4+tg2 @ d8"]);
        assert_eq!(cases(&args).len(), 8);
        assert!(shapes(&parsed("x -p 0 -n 0")).is_empty());
    }
}
