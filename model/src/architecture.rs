//! The table of architectures, and the families that are refused with a reason.

use llamay_gguf::Gguf;

use crate::{File, Loaded, ModelError, gemma3, llama};

/// One architecture.
#[derive(Debug)]
pub struct Architecture {
    /// The value of `general.architecture`.
    pub name: &'static str,
    /// Models that come as this architecture, for people.
    pub models: &'static str,
    /// Writes the plan of a file.
    pub(crate) build: fn(File<'_>) -> Result<Loaded, ModelError>,
}

/// Every architecture, by name.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "gemma3", models: "Gemma 3", build: gemma3::build },
    Architecture { name: "llama", models: "Llama 2 and 3, SmolLM2, Mistral", build: llama::build },
];

/// The names of all architectures.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|a| a.name)
}

const STATE_SPACE: &str = "state-space layers (Mamba, RWKV and hybrids with them) have no steps here";
const VISION: &str =
    "it is the image or audio half of a model, not a language model; give the language model's file";
const LATENT: &str = "multi-head latent attention (MLA) has no steps here";
const ENCODER_DECODER: &str = "encoder-decoder models have no steps here";
const ENCODER: &str = "embedding encoders do not generate text";
const EXPERTS: &str = "mixtures of experts have no steps here yet";

/// Architectures that are known and not supported, by reason.
const FAMILIES: &[(&str, &[&str])] = &[
    (
        STATE_SPACE,
        &[
            "mamba",
            "mamba2",
            "jamba",
            "rwkv6",
            "rwkv6qwen2",
            "rwkv7",
            "arwkv7",
            "falcon-h1",
            "plamo2",
            "nemotron_h",
            "nemotron_h_moe",
            "granitehybrid",
            "lfm2",
            "lfm2moe",
            "qwen3next",
            "qwen35",
            "qwen35moe",
            "kimi-linear",
        ],
    ),
    (VISION, &["clip", "mmproj", "wavtokenizer-dec"]),
    (LATENT, &["deepseek2", "deepseek2-ocr", "minicpm3", "plm", "glm-dsa", "mistral4"]),
    (ENCODER_DECODER, &["t5", "t5encoder"]),
    (
        ENCODER,
        &[
            "bert",
            "modern-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "neo-bert",
            "jina-bert-v2",
            "jina-bert-v3",
            "eurobert",
            "gemma-embedding",
            "llama-embed",
        ],
    ),
    (
        EXPERTS,
        &[
            "llama4",
            "grok",
            "qwen2moe",
            "qwen3moe",
            "qwen3vlmoe",
            "phimoe",
            "dbrx",
            "olmoe",
            "arctic",
            "deepseek",
            "glm4moe",
            "exaone-moe",
            "granitemoe",
            "bailingmoe",
            "bailingmoe2",
            "dots1",
            "afmoe",
            "ernie4_5-moe",
            "hunyuan-moe",
            "gpt-oss",
            "smallthinker",
            "llada-moe",
            "grovemoe",
            "minimax-m2",
            "mimo2",
        ],
    ),
];

/// The architecture of a file.
pub(crate) fn of(gguf: &Gguf) -> Result<&'static Architecture, ModelError> {
    let name = gguf.metadata().need_str("general.architecture")?;
    if let Some(architecture) = ARCHITECTURES.iter().find(|a| a.name == name) {
        return Ok(architecture);
    }
    Err(match FAMILIES.iter().find(|(_, names)| names.contains(&name)) {
        Some((why, _)) => ModelError::Family { name: name.to_owned(), why },
        None => ModelError::UnknownArchitecture { name: name.to_owned() },
    })
}
