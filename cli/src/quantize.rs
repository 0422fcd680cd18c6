//! `llamay quantize`: a model in another format.

use std::path::PathBuf;

use llamay_engine::gguf::Gguf;
use llamay_engine::quantize::{Progress, Recipe, quantize};
use llamay_engine::{AdapterSource, Cancel, available_threads};
use serde_json::json;

use crate::args::{self, Adapters};
use crate::error::CliError;
use crate::{output, run};

const AFTER_HELP: &str = "\
FORMAT is one of those that `llamay version` marks, such as Q8_0, Q4_0 or Q6_K, or a mixture: Q4_K_M and Q5_K_M keep
the values of attention and the feed-forward outputs of half of the layers in Q6_K, MXFP4_MOE everything but experts in
Q8_0. Vectors and the routers of experts stay as they are. Below six bits the output matrix (or the embedding that
serves as one) becomes Q6_K, and the attention beside eight experts gets more bits. Matrices whose rows are no multiple
of the block get the nearest format with smaller blocks, which is told. Any GGUF file will do, also one that llamay
cannot run. Adapters become part of the weights.

Examples:
  llamay quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M
  llamay quantize model-f16.gguf merged-q8_0.gguf Q8_0 --lora adapter.gguf:0.5";

/// Write a model's matrices in another format
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file
    input: PathBuf,
    /// The file to write
    output: PathBuf,
    /// The format or mixture
    format: String,
    /// Every matrix in the same format, the output matrix too
    #[arg(long)]
    pure: bool,
    #[command(flatten)]
    adapters: Adapters,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
    /// Threads [default: the fast cores that affinity and CPU quota give]
    #[arg(short = 't', long, value_name = "N", value_parser = args::threads())]
    threads: Option<usize>,
    /// Print one object: format, converted, copied, merged, requantized, fallbacks, bytes_before, bytes_after
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let recipe = Recipe::named(&args.format, args.pure).map_err(|e| CliError::Usage(e.to_string()))?;
    if args.output.exists() && !args.force {
        let path = args.output.display();
        return Err(CliError::Failure(format!("{path}: the file exists already; --force overwrites it")));
    }
    let threads = match args.threads {
        Some(threads) => threads,
        None => llamay_engine::Options::from_env()?.threads.unwrap_or_else(available_threads),
    };
    let input = Gguf::open(&args.input)?;
    let adapters = AdapterSource::open_all(&args.adapters.lora)?;
    let cancel = Cancel::new();
    run::on_interrupt(&cancel, false)?;
    let bar = output::bar(0, "[{bar:30}] {bytes}/{total_bytes} {msg}, {eta} left");
    let mut progress = |p: Progress<'_>| {
        bar.set_length(p.total);
        bar.set_position(p.done);
        bar.set_message(format!("{} → {}", p.tensor, p.format));
    };
    let result = quantize(&input, &adapters, &args.output, &recipe, threads, &cancel, &mut progress);
    bar.finish_and_clear();
    if cancel.is_cancelled() {
        return Err(CliError::Interrupted);
    }
    let result = result?;
    for (n, wanted, got) in &result.fallbacks {
        let tensors = if *n == 1 { "tensor has" } else { "tensors have" };
        output::note(&format!("{n} {tensors} rows that are no whole {wanted} blocks: {got} instead"));
    }
    if result.requantized > 0 {
        let n = result.requantized;
        output::note(&format!(
            "warning: {n} tensors were quantised before, so their losses add up; an F16 file is better"
        ));
    }
    if args.json {
        let fallbacks = result
            .fallbacks
            .iter()
            .map(|(n, wanted, got)| json!({ "tensors": n, "wanted": wanted.name(), "got": got.name() }));
        return output::print_json(&json!({
            "format": recipe.name(),
            "converted": result.converted,
            "copied": result.copied,
            "merged": result.merged,
            "requantized": result.requantized,
            "fallbacks": fallbacks.collect::<Vec<_>>(),
            "bytes_before": result.bytes_before,
            "bytes_after": result.bytes_after,
        }));
    }
    let merged = match result.merged {
        0 => String::new(),
        n => format!(", {n} with what adapters add"),
    };
    output::print(&format!(
        "{}: {} tensors in {}, {} as they were{merged}; {} → {}\n",
        args.output.display(),
        result.converted,
        recipe.name(),
        result.copied,
        output::bytes(result.bytes_before),
        output::bytes(result.bytes_after)
    ))
}
