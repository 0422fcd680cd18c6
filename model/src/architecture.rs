//! The table of architectures, and the families that are refused with a reason.

use llamay_gguf::Gguf;

use crate::{File, Loaded, ModelError};
use crate::{
    afmoe, cohere, exaone4, falcon, gemma, gemma2, gemma3, glm4, gpt_oss, gpt2, gptneox, granite, granitemoe,
    llama, mistral3, moe, olmo, olmo2, phi2, pre_norm, smollm3, stablelm,
};

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
    Architecture { name: "afmoe", models: "Arcee Trinity", build: afmoe::build },
    Architecture { name: "arcee", models: "Arcee AFM", build: pre_norm::arcee },
    Architecture { name: "baichuan", models: "Baichuan 7B", build: pre_norm::baichuan },
    Architecture { name: "bailingmoe", models: "Ling lite and plus", build: moe::bailing },
    Architecture { name: "chatglm", models: "ChatGLM 3, GLM-4 of 2024", build: glm4::chatglm },
    Architecture { name: "cohere2", models: "Command R7B and A", build: cohere::cohere2 },
    Architecture { name: "command-r", models: "Command R and R+, Aya", build: cohere::command_r },
    Architecture { name: "dots1", models: "dots.llm1", build: moe::dots1 },
    Architecture { name: "ernie4_5", models: "ERNIE 4.5", build: pre_norm::ernie4_5 },
    Architecture { name: "ernie4_5-moe", models: "ERNIE 4.5 with experts", build: moe::ernie4_5 },
    Architecture { name: "exaone", models: "EXAONE 3 and 3.5", build: pre_norm::exaone },
    Architecture { name: "exaone4", models: "EXAONE 4", build: exaone4::build },
    Architecture { name: "falcon", models: "Falcon 7B, 11B, 40B, 180B", build: falcon::build },
    Architecture { name: "gemma", models: "Gemma", build: gemma::build },
    Architecture { name: "gemma2", models: "Gemma 2", build: gemma2::build },
    Architecture { name: "gemma3", models: "Gemma 3", build: gemma3::build },
    Architecture { name: "glm4", models: "GLM-4 of 2025", build: glm4::glm4 },
    Architecture { name: "glm4moe", models: "GLM 4.5 to 4.7", build: moe::glm4 },
    Architecture { name: "gpt-oss", models: "gpt-oss", build: gpt_oss::build },
    Architecture { name: "gpt2", models: "GPT-2", build: gpt2::gpt2 },
    Architecture { name: "gptneox", models: "GPT-NeoX, Pythia", build: gptneox::build },
    Architecture { name: "granite", models: "Granite 3 and 4, dense", build: granite::granite },
    Architecture { name: "granitemoe", models: "Granite 3 and 4 with experts", build: granitemoe::build },
    Architecture { name: "hunyuan-dense", models: "Hunyuan 0.5B to 7B", build: pre_norm::hunyuan },
    Architecture { name: "hunyuan-moe", models: "Hunyuan A13B", build: moe::hunyuan },
    Architecture { name: "internlm2", models: "InternLM 2 and 2.5", build: pre_norm::internlm2 },
    Architecture { name: "llama", models: "Llama 2 and 3, SmolLM2, Mistral, Mixtral", build: llama::build },
    Architecture { name: "minicpm", models: "MiniCPM 1, 2 and 4", build: granite::minicpm },
    Architecture { name: "minimax-m2", models: "MiniMax M2", build: moe::minimax_m2 },
    Architecture { name: "mistral3", models: "Ministral 3, Mistral Small 3.1", build: mistral3::build },
    Architecture { name: "nemotron", models: "Nemotron 4, Minitron", build: pre_norm::nemotron },
    Architecture { name: "olmo", models: "OLMo 1", build: olmo::build },
    Architecture { name: "olmo2", models: "OLMo 2 and 3", build: olmo2::build },
    Architecture { name: "olmoe", models: "OLMoE", build: moe::olmoe },
    Architecture { name: "orion", models: "Orion 14B", build: pre_norm::orion },
    Architecture { name: "phi2", models: "Phi 1, 1.5 and 2", build: phi2::build },
    Architecture { name: "phi3", models: "Phi 3, 3.5 and 4", build: pre_norm::phi3 },
    Architecture { name: "qwen2", models: "Qwen 2 and 2.5", build: pre_norm::qwen2 },
    Architecture { name: "qwen2moe", models: "Qwen 1.5 and 2 with experts", build: moe::qwen2 },
    Architecture { name: "qwen3", models: "Qwen 3", build: pre_norm::qwen3 },
    Architecture { name: "qwen3moe", models: "Qwen 3 with experts", build: moe::qwen3 },
    Architecture { name: "seed_oss", models: "Seed-OSS", build: pre_norm::seed_oss },
    Architecture { name: "smollm3", models: "SmolLM3", build: smollm3::build },
    Architecture { name: "stablelm", models: "StableLM 3B, 2 1.6B and 2 12B", build: stablelm::build },
    Architecture { name: "starcoder", models: "StarCoder, SantaCoder", build: gpt2::starcoder },
    Architecture { name: "starcoder2", models: "StarCoder 2", build: pre_norm::starcoder2 },
    Architecture { name: "xverse", models: "XVERSE", build: pre_norm::xverse },
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
const EXPERTS: &str = "this mixture of experts has no steps here yet";

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
            "qwen3vlmoe",
            "phimoe",
            "dbrx",
            "arctic",
            "deepseek",
            "exaone-moe",
            "bailingmoe2",
            "smallthinker",
            "llada-moe",
            "grovemoe",
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
