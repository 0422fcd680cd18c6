//! Architectures: from a GGUF file's metadata and tensors to a [`Plan`].
//!
//! An architecture computes nothing. It reads its hyperparameters, checks every tensor's name, shape and type, and writes
//! down the steps of the forward pass; backends execute those and never learn the architecture's name. Whatever a file
//! asks for that is not understood is refused here, by name, before anything is loaded.
//!
//! # Adding an architecture
//!
//! 1. Write `src/<name>.rs` with one function that reads top to bottom like the model's forward pass; `llama.rs` is the
//!    example. `config.rs` reads and checks what nearly all models share.
//! 2. Add its line to [`ARCHITECTURES`].
//! 3. Add a tiny Hugging Face model to `tools/reference/twins` and run `make.py` there: it writes the generated model and
//!    the logits that it has to give.
//!
//! ```
//! use llamay_formats::Format;
//! use llamay_gguf::Gguf;
//! use llamay_model::shapes::Shape;
//!
//! let shape = Shape::named("llama-gqa").expect("a generated model");
//! let file = Gguf::from_bytes(shape.gguf(Format::Q8_0)?)?;
//! let plan = llamay_model::plan(&file)?;
//! assert_eq!(plan.architecture, "llama");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod afmoe;
mod architecture;
mod builder;
mod cohere;
mod config;
mod error;
mod exaone4;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod glm4;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod granitemoe;
mod llama;
pub mod lora;
mod mistral3;
mod moe;
#[cfg(feature = "test-data")]
pub mod naive;
mod olmo;
mod olmo2;
mod phi2;
mod pre_norm;
#[cfg(feature = "test-data")]
pub mod reference;
mod rope;
#[cfg(feature = "test-data")]
pub mod shapes;
mod smollm3;
mod stablelm;
mod tensors;
mod validate;

pub use architecture::{ARCHITECTURES, Architecture, architectures};
pub use error::ModelError;
pub use llamay_plan::Plan;
pub use validate::{Invalid, validate};

use llamay_gguf::Gguf;

/// What a file holds, as far as running it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The forward pass.
    pub plan: Plan,
    /// Tensors of the file that the plan does not read, in file order, but for those known to be harmless. They deserve
    /// a warning.
    pub unused: Vec<String>,
}

/// What a plan depends on beside its file.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    /// Positions that a sequence may get; the trained ones if there is no wish. Models with long rope turn differently in
    /// a context that is longer than the original one.
    pub n_ctx: Option<usize>,
}

/// A file that is being read.
#[derive(Clone, Copy)]
pub(crate) struct File<'a> {
    pub(crate) gguf: &'a Gguf,
    pub(crate) options: PlanOptions,
}

impl<'a> File<'a> {
    /// The metadata keys of an architecture.
    pub(crate) fn keys(&self, architecture: &'static str) -> config::Keys<'a> {
        config::Keys { metadata: self.gguf.metadata(), architecture }
    }
}

/// Reads the metadata and the table of tensors, and writes the plan.
///
/// Of the tensors' data only small constants are read (the frequency divisors of Llama 3.1).
///
/// # Errors
/// One sentence about the first thing that is missing, wrong or not supported, naming the key or the tensor.
pub fn load_with(gguf: &Gguf, options: PlanOptions) -> Result<Loaded, ModelError> {
    let loaded = (architecture::of(gguf)?.build)(File { gguf, options })?;
    debug_assert_eq!(validate(&loaded.plan), Ok(()), "an architecture wrote a plan that cannot run");
    Ok(loaded)
}

/// As [`load_with`], without wishes.
///
/// # Errors
/// As [`load_with`].
pub fn load(gguf: &Gguf) -> Result<Loaded, ModelError> {
    load_with(gguf, PlanOptions::default())
}

/// As [`load`], for callers that do not care about unused tensors.
///
/// # Errors
/// As [`load`].
pub fn plan(gguf: &Gguf) -> Result<Plan, ModelError> {
    load(gguf).map(|loaded| loaded.plan)
}
