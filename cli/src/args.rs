//! The commands, and the options that they share.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand, ValueEnum};
use llamay_engine::gguf::Gguf;
use llamay_engine::{AdapterFile, DeviceChoice, KvType, MAX_THREADS, Model, Options};

use crate::error::CliError;
use crate::{
    bench, completions, devices, inspect, logits, output, perplexity, quantize, run, tokenize, verify,
    version,
};

const AFTER_HELP: &str = "\
Environment:
  LLAMAY_THREADS=N         Threads, where -t does not say
  LLAMAY_ISA=NAME          The most capable CPU kernels to use; `llamay version` lists the names
  LLAMAY_BACKEND=portable  Run the portable reference kernels
  LLAMAY_NO_REPACK=1       As --no-repack
  LLAMAY_GPU=NAME          As --device; off for the CPU alone

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
    Devices(devices::Args),
    Version(version::Args),
    Completions(completions::Args),
}

/// Options of every command that runs a model.
#[derive(clap::Args)]
#[command(next_help_heading = "Running the model")]
pub(crate) struct RunOptions {
    /// Threads [default: the fast cores that affinity and CPU quota give]
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
    #[command(flatten)]
    pub(crate) device: Device,
    /// Read weights from the file as they are used, for a model larger than memory; slower
    #[arg(long)]
    pub(crate) no_repack: bool,
    #[command(flatten)]
    pub(crate) adapters: Adapters,
}

/// The options that choose a device.
#[derive(clap::Args)]
pub(crate) struct Device {
    /// auto, off, or a name that `llamay devices` lists [default: LLAMAY_GPU, or the best GPU]
    #[arg(long, value_name = "NAME", value_parser = device)]
    pub(crate) device: Option<DeviceChoice>,
    /// Layers that run on the GPU, the last ones first [default: as many as its memory holds]
    #[arg(long, value_name = "N")]
    pub(crate) gpu_layers: Option<u32>,
}

fn device(text: &str) -> Result<DeviceChoice, String> {
    DeviceChoice::parse(text).map_err(|wanted| format!("use one of: {wanted}"))
}

impl Device {
    /// The options with what was chosen.
    pub(crate) fn choose(&self, options: Options) -> Options {
        Options {
            device: self.device.clone().unwrap_or(options.device),
            gpu_layers: self.gpu_layers.or(options.gpu_layers),
            ..options
        }
    }
}

/// The option that names LoRA adapters.
#[derive(clap::Args)]
pub(crate) struct Adapters {
    /// A LoRA adapter, a GGUF file, and the factor of what it adds [default: 1]; may be repeated
    #[arg(long, value_name = "FILE[:SCALE]", value_parser = adapter)]
    pub(crate) lora: Vec<AdapterFile>,
}

/// A file, and behind its last colon a scale, if that is a number.
fn adapter(text: &str) -> Result<AdapterFile, String> {
    let scaled = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale.parse::<f32>().ok()?)));
    let (path, scale) = scaled.unwrap_or((text, 1.0));
    if path.is_empty() {
        return Err("there is no file before the colon".to_owned());
    }
    if !scale.is_finite() {
        return Err("the scale has to be a finite number".to_owned());
    }
    Ok(AdapterFile { path: path.into(), scale })
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
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> KvType {
        match kv {
            Kv::F16 => KvType::F16,
            Kv::F32 => KvType::F32,
            Kv::Q8_0 => KvType::Q8_0,
            Kv::Q4_0 => KvType::Q4_0,
        }
    }
}

impl RunOptions {
    /// The engine's options: the environment's, then the flags'.
    pub(crate) fn options(&self) -> Result<Options, CliError> {
        let env = self.device.choose(Options::from_env()?);
        Ok(Options {
            threads: self.threads.or(env.threads),
            context: self.ctx_size.or(env.context),
            kv: self.kv_type.into(),
            batch: Some(self.batch_size),
            no_repack: self.no_repack || env.no_repack,
            adapters: self.adapters.lora.clone(),
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
    let model = load("", gguf, options)?;
    Ok(Opened { model, load_time: start.elapsed() })
}

/// Loads a model with a progress bar, and tells on standard error where it runs and what is odd about it, behind a label.
pub(crate) fn load(label: &str, gguf: Gguf, options: &Options) -> Result<Model, CliError> {
    let bar = output::bar(0, "loading [{bar:40}] {bytes}/{total_bytes}");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let model = Model::from_gguf(gguf, options, &progress);
    bar.finish_and_clear();
    let model = model?;
    output::note(&format!("{label}{}", model.placement()));
    model.adapters().iter().for_each(|adapter| output::note(&adapter.to_string()));
    model.warnings().iter().for_each(|warning| output::note(&format!("warning: {label}{warning}")));
    Ok(model)
}

/// Says on standard error what has happened to the model's device since this was last called.
pub(crate) fn tell_notices(model: &Model) {
    model.take_notices().iter().for_each(|notice| output::note(&format!("warning: {notice}")));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn an_adapter_may_have_a_scale() {
        let is = |text: &str, path: &str, scale| {
            assert_eq!(adapter(text), Ok(AdapterFile { path: path.into(), scale }), "{text}");
        };
        is("a.gguf", "a.gguf", 1.0);
        is("a.gguf:0.5", "a.gguf", 0.5);
        is("a.gguf:-1", "a.gguf", -1.0);
        is("C:\\a.gguf", "C:\\a.gguf", 1.0);
        is("C:\\a.gguf:2e-1", "C:\\a.gguf", 0.2);
        assert!(adapter(":0.5").is_err() && adapter("a.gguf:inf").is_err() && adapter("").is_err());
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
