//! Options of speculative decoding.

use std::path::PathBuf;

use llamay_engine::gguf::Gguf;
use llamay_engine::{DraftOptions, MAX_DRAFT, Model, Options, Speculator};

use crate::args;
use crate::error::CliError;

/// Who guesses tokens ahead. The text is the same with and without.
#[derive(clap::Args)]
#[command(next_help_heading = "Guessing ahead (the text stays the same)")]
pub(crate) struct SpeculationArgs {
    /// A small model of the same vocabulary that guesses the next tokens, for the model to check several at once
    #[arg(long, value_name = "FILE", group = "guesser")]
    draft: Option<PathBuf>,
    /// Guess that the text goes on as where its last tokens occurred before; for answers that copy from the prompt
    #[arg(long, group = "guesser")]
    lookup: bool,
    /// Tokens guessed at once, at the most; fewer as long as guesses are wrong
    #[arg(
        long, value_name = "N", requires = "guesser", default_value_t = DraftOptions::default().max,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_DRAFT as u64)
    )]
    draft_max: usize,
    /// The draft model stops where it gives its guesses, together, less than this probability
    #[arg(
        long, value_name = "P", requires = "draft", conflicts_with = "lookup",
        default_value_t = DraftOptions::default().min_p, value_parser = probability
    )]
    draft_min_p: f32,
}

fn probability(text: &str) -> Result<f32, String> {
    let p = text.parse::<f32>().ok().filter(|p| (0.0..=1.0).contains(p));
    p.ok_or_else(|| "a number from 0 to 1 is wanted".to_owned())
}

/// The draft model's file, before it is loaded.
pub(crate) struct Draft {
    path: PathBuf,
    gguf: Gguf,
    options: Options,
}

impl SpeculationArgs {
    /// Looks at the draft model's file, if there is one. Of `model`'s options, those then leave memory for it.
    pub(crate) fn draft(&self, model: &mut Options) -> Result<Option<Draft>, CliError> {
        let Some(path) = &self.draft else { return Ok(None) };
        let named = |error: llamay_engine::Error| CliError::from(error).about(path);
        let gguf = Gguf::open(path)?;
        let options = model.for_draft(&gguf).map_err(named)?;
        model.reserved = Model::needs(&gguf, &options).map_err(named)?;
        Ok(Some(Draft { path: path.clone(), gguf, options }))
    }

    /// Whoever guesses for the model, loaded.
    pub(crate) fn speculator(
        &self,
        draft: Option<Draft>,
        model: &Model,
    ) -> Result<Option<Speculator>, CliError> {
        let options = DraftOptions { max: self.draft_max, min_p: self.draft_min_p };
        Ok(match draft {
            Some(draft) => Some(Speculator::draft(&draft.load()?, model, &options)?),
            None if self.lookup => Some(Speculator::lookup(&options)?),
            None => None,
        })
    }
}

impl Draft {
    /// An error if the file's vocabulary is not that of the model's file.
    pub(crate) fn check(&self, model: &Gguf) -> Result<(), CliError> {
        Ok(Speculator::check_vocabulary(&self.gguf, model)?)
    }

    fn load(self) -> Result<Model, CliError> {
        args::load("draft: ", self.gguf, &self.options).map_err(|error| error.about(&self.path))
    }
}
