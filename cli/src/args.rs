//! The commands, and the options that they share.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use llamay_engine::gguf::Gguf;
use llamay_engine::{KvType, MAX_THREADS, Model, Options};

use crate::error::CliError;
use crate::{
    bench, completions, inspect, logits, output, perplexity, quantize, run, tokenize, verify, version,
};

const AFTER_HELP: &str = "\
Environment:
  LLAMAY_THREADS=N         Threads, where -t does not say
  LLAMAY_ISA=NAME          The most capable CPU kernels to use; `llamay version` lists the names
  LLAMAY_BACKEND=portable  Run the portable reference kernels
  LLAMAY_GPU=off|auto      GPU use; this build has no GPU backend

Results go to standard output, everything else to standard error.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.

Example:
  llamay run model.gguf \"Why is the sky blue?\"";

/// Runs any GGUF language model on whatever the machine has
#[derive(Parser)]
#[command(name = "llamay", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Bench(bench::Args),
    Perplexity(perplexity::Args),
    Logits(logits::Args),
    Tokenize(tokenize::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Quantize(quantize::Args),
    Version(version::Args),
    Completions(completions::Args),
}

/// Options of every command that runs a model.
#[derive(clap::Args)]
#[command(next_help_heading = "Running the model")]
pub(crate) struct RunOptions {
    /// Threads [default: as many as affinity and CPU quota give]
    #[arg(short = 't', long, value_name = "N", value_parser = threads())]
    pub(crate) threads: Option<usize>,
    /// Positions of the context [default: what the model was trained with]
    #[arg(short = 'c', long, value_name = "N", value_parser = positive())]
    pub(crate) ctx_size: Option<usize>,
    /// Tokens of a prompt that are computed in one go
    #[arg(short = 'b', long, value_name = "N", value_parser = positive(), default_value_t = 512)]
    pub(crate) batch_size: usize,
    /// Element type of the KV cache
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub(crate) kv_type: Kv,
}

/// The parser of a number of threads.
pub(crate) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MAX_THREADS as u64)
}

/// The parser of a number of at least 1 that is no larger than any sensible context.
pub(crate) fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 30)
}

/// [`KvType`] as an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kv {
    F16,
    F32,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> KvType {
        match kv {
            Kv::F16 => KvType::F16,
            Kv::F32 => KvType::F32,
        }
    }
}

impl RunOptions {
    /// The engine's options: the environment's, then the flags'.
    pub(crate) fn options(&self) -> Result<Options, CliError> {
        let env = Options::from_env()?;
        Ok(Options {
            threads: self.threads.or(env.threads),
            context: self.ctx_size.or(env.context),
            kv: self.kv_type.into(),
            batch: Some(self.batch_size),
            ..env
        })
    }

    /// Opens the model and tells where it runs.
    pub(crate) fn open(&self, path: &Path) -> Result<Opened, CliError> {
        open(path, &self.options()?, |_| Ok(()))
    }
}

/// A model, and how long it took to load.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) load_time: Duration,
}

/// Opens a model with a progress bar, and tells on standard error where it runs and what is odd about it.
///
/// `check` may object to the file before the weights are loaded.
pub(crate) fn open(
    path: &Path,
    options: &Options,
    check: impl FnOnce(&Gguf) -> Result<(), CliError>,
) -> Result<Opened, CliError> {
    let start = Instant::now();
    let gguf = Gguf::open(path)?;
    check(&gguf)?;
    let bar = output::bar(0, "loading [{bar:40}] {bytes}/{total_bytes}");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let model = Model::from_gguf(gguf, options, &progress);
    bar.finish_and_clear();
    let model = model?;
    let load_time = start.elapsed();
    output::note(model.placement());
    model.warnings().iter().for_each(|warning| output::note(&format!("warning: {warning}")));
    Ok(Opened { model, load_time })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
