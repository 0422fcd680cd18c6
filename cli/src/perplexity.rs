//! `llamay perplexity`: how well a model predicts a text.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use llamay_engine::{Cancel, Options};
use serde_json::json;

use crate::args::{self, RunOptions};
use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
The text is cut into chunks of the context size; the second half of each is scored. Figures compare with those of
llama-perplexity for the same text and context size.

Example:
  llamay perplexity model.gguf wiki.test.raw --chunks 20";

/// Measure how well a model predicts a text
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, mut_arg("ctx_size", |arg| arg.help("Tokens of a chunk [default: 512]")))]
pub(crate) struct Args {
    /// The model, a GGUF file
    model: PathBuf,
    /// The text, UTF-8; `-` reads standard input
    file: PathBuf,
    /// Chunks to score at most [default: all]
    #[arg(long, value_name = "N", value_parser = args::positive())]
    chunks: Option<usize>,
    /// How to print the result; json is an object of ppl, stderr, chunks and tokens (those that were scored)
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// The same as -o json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The context size, and so the chunk, where none is asked for: the one that published figures use.
const CONTEXT: usize = 512;

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let text = read(&args.file)?;
    let context = args.run.ctx_size.unwrap_or(CONTEXT);
    let options = Options { context: Some(context), ..args.run.options()? };
    let model = args::open(&args.model, &options, |_| Ok(()))?.model;

    let bar = output::bar(0, "{pos}/{len} chunks [{bar:30}] {msg}, {eta} left");
    let cancel = Cancel::new();
    let mut told = 0;
    let result = model.perplexity(&text, context, &cancel, &mut |so_far, total| {
        let total = args.chunks.map_or(total, |most| most.min(total));
        bar.set_length(total as u64);
        bar.set_position(so_far.chunks as u64);
        bar.set_message(format!("perplexity {:.4}", so_far.ppl));
        // Where the bar does not show, a twentieth of the way is a line.
        if !output::stderr_is_terminal() && so_far.chunks * 20 / total != told {
            told = so_far.chunks * 20 / total;
            output::note(&format!("{}/{total} chunks: perplexity {:.4}", so_far.chunks, so_far.ppl));
        }
        if so_far.chunks == total {
            cancel.cancel();
        }
    });
    bar.finish_and_clear();
    args::tell_notices(&model);
    let result = result?;
    if args.json || args.output == Format::Json {
        return output::print_json(&json!({
            "ppl": result.ppl,
            "stderr": result.stderr,
            "chunks": result.chunks,
            "tokens": result.tokens,
        }));
    }
    output::print(&format!(
        "perplexity {:.4} ± {:.4} ({} chunks of {context} tokens, {} scored)\n",
        result.ppl, result.stderr, result.chunks, result.tokens
    ))
}

fn read(file: &Path) -> Result<String, CliError> {
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    let fail = |why: String| CliError::Failure(format!("{}: {why}", file.display()));
    let bytes = bytes.map_err(|e| fail(format!("the text cannot be read: {e}")))?;
    String::from_utf8(bytes).map_err(|e| {
        fail(format!("the text is not UTF-8: byte {} begins no character", e.utf8_error().valid_up_to()))
    })
}
