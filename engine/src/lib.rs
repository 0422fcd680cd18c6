//! llamay as a library: open a model, run sessions, generate text.
//!
//! ```no_run
//! use llamay_engine::{Cancel, Chat, GenerateOptions, Model, Options};
//!
//! let model = Model::open("model.gguf", &Options::default(), &|_done, _total| {})?;
//! let mut chat = Chat::new(&model)?;
//! let reply = chat.say("Why is the sky blue?", &GenerateOptions::default(), &Cancel::new(), &mut |text| {
//!     print!("{text}");
//! })?;
//! eprintln!("{:.1} tokens/s", reply.generation.stats.token_rate());
//! # Ok::<(), llamay_engine::Error>(())
//! ```
//!
//! Every result is the same bits whatever the threads, the instruction set, and the other sessions of a batch.

mod adapters;
mod cache;
mod cancel;
mod chat;
mod devices;
mod error;
mod generate;
mod hybrid;
mod inspect;
mod model;
mod options;
mod pages;
mod perplexity;
pub mod quantize;
pub mod sampling;
mod session;
mod share;
mod source;
mod speculate;
#[cfg(test)]
mod testing;
pub mod verify;

pub use adapters::{AdapterFile, AdapterInfo, AdapterSource};
pub use cancel::Cancel;
pub use chat::{Chat, Reply};
pub use devices::{Device, DeviceChoice, devices, gpu_backends};
pub use error::Error;
pub use generate::{Finish, GenerateOptions, Generation, Stats};
pub use inspect::{ExpertUse, FormatUse, Inspection, Runnable, Vocabulary};
pub use llamay_cpu::{Isa, available_threads};
pub use llamay_gguf as gguf;
pub use llamay_model::lora;
pub use llamay_plan as plan;
pub use llamay_plan::KvType;
pub use llamay_tokenizer as tokenizer;
pub use model::{DEFAULT_BATCH, Memory, Model};
pub use options::{CustomBackend, MAX_THREADS, Options};
pub use perplexity::Perplexity;
pub use session::{Feed, Logits, Session};
pub use speculate::{DraftOptions, DraftStats, MAX_DRAFT, Speculator};
