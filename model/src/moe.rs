//! Decoders like Llama whose feed-forward parts are mixtures of experts. They differ in norms of queries and keys, in how
//! the router chooses and weighs, and in what every token visits beside its experts.
//!
//! - dots.llm1: rednote-hilab, "dots.llm1 Technical Report" (2025).
//! - ERNIE 4.5: Baidu, "ERNIE 4.5 Technical Report" (2025).
//! - GLM 4.5: GLM-4.5 Team, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models" (2025).
//! - Hunyuan A13B: Tencent, "Hunyuan-A13B Technical Report" (2025).
//! - Ling: Ling Team, "Every FLOP Counts: Scaling a 300B Mixture-of-Experts LING LLM without Premium GPUs" (2025).
//! - MiniMax M2: MiniMax (2025).
//! - OLMoE: Muennighoff et al., "OLMoE: Open Mixture-of-Experts Language Models" (2024).
//! - Qwen: Qwen Team, "Qwen2 Technical Report" (2024) and "Qwen3 Technical Report" (2025).

use llamay_plan::{NormKind, RopePairs, Scoring};

use crate::builder::{Attention, Builder, HeadNorms, Mixture, Usual, Width};
use crate::config::{Config, Keys};
use crate::{File, Loaded, ModelError};

/// What such a decoder is apart from its sizes.
struct Decoder {
    name: &'static str,
    pairs: RopePairs,
    head_norms: HeadNorms,
    /// What files call the norm before the feed-forward part.
    ffn_norm: &'static str,
    mixture: Usual,
    /// Keys of features that others do not have.
    keys: &'static [&'static str],
}

const SHARED: &[&str] = &["expert_count", "expert_shared_count"];
const LEADING_DENSE: &[&str] = &["expert_count", "expert_shared_count", "leading_dense_block_count"];
/// Layers that guess the tokens behind the next one stand behind the others, and are counted with them.
const FURTHER_TOKENS: &str = "nextn_predict_layers";

/// Mixtral with heads whose halves rotate against each other.
const fn mixtral(name: &'static str) -> Decoder {
    Decoder {
        name,
        pairs: RopePairs::Halves,
        head_norms: HeadNorms::None,
        ffn_norm: "ffn_norm",
        mixture: Usual::MIXTRAL,
        keys: &["expert_count"],
    }
}

pub(crate) fn bailing(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual { normalize: false, shared: Some(Width::Expert), ..Usual::MIXTRAL };
    let pairs = RopePairs::Interleaved;
    build(file, &Decoder { pairs, mixture, keys: SHARED, ..mixtral("bailingmoe") })
}

pub(crate) fn dots1(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture =
        Usual { scoring: Scoring::Sigmoid, normalize: false, shared: Some(Width::Expert), ..Usual::MIXTRAL };
    let head_norms = HeadNorms::BeforeRope;
    build(file, &Decoder { head_norms, mixture, keys: LEADING_DENSE, ..mixtral("dots1") })
}

pub(crate) fn ernie4_5(file: File<'_>) -> Result<Loaded, ModelError> {
    let pairs = RopePairs::Interleaved;
    build(file, &Decoder { pairs, keys: LEADING_DENSE, ..mixtral("ernie4_5-moe") })
}

pub(crate) fn glm4(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual {
        scoring: Scoring::Sigmoid,
        choice_bias: true,
        width: Width::DenseShare,
        shared: Some(Width::Expert),
        ..Usual::MIXTRAL
    };
    // Files of GLM 4.5 and later count a layer for further tokens.
    let keys = &["expert_count", "expert_shared_count", "leading_dense_block_count", FURTHER_TOKENS];
    let (head_norms, ffn_norm) = (HeadNorms::BeforeRopeIfThere, "post_attention_norm");
    build(file, &Decoder { head_norms, ffn_norm, mixture, keys, ..mixtral("glm4moe") })
}

pub(crate) fn hunyuan(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual { shared: Some(Width::Dense), ..Usual::MIXTRAL };
    let head_norms = HeadNorms::BehindRope;
    build(file, &Decoder { head_norms, mixture, keys: SHARED, ..mixtral("hunyuan-moe") })
}

pub(crate) fn minimax_m2(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual { scoring: Scoring::Sigmoid, choice_bias: true, ..Usual::MIXTRAL };
    build(file, &Decoder { head_norms: HeadNorms::OfRows, mixture, ..mixtral("minimax-m2") })
}

pub(crate) fn olmoe(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual { normalize: false, ..Usual::MIXTRAL };
    build(file, &Decoder { head_norms: HeadNorms::OfRows, mixture, ..mixtral("olmoe") })
}

pub(crate) fn qwen2(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual {
        normalize: false,
        width: Width::DenseShare,
        shared: Some(Width::Dense),
        shared_gate: true,
        ..Usual::MIXTRAL
    };
    build(file, &Decoder { mixture, keys: SHARED, ..mixtral("qwen2moe") })
}

pub(crate) fn qwen3(file: File<'_>) -> Result<Loaded, ModelError> {
    let mixture = Usual { width: Width::DenseShare, ..Usual::MIXTRAL };
    build(file, &Decoder { head_norms: HeadNorms::BeforeRope, mixture, ..mixtral("qwen3moe") })
}

fn build(file: File<'_>, d: &Decoder) -> Result<Loaded, ModelError> {
    let keys = file.keys(d.name);
    let mut config = Config::read(keys, NormKind::Rms, d.keys)?;
    config.n_layer -= further_layers(keys, d, config.n_layer)?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    b.tensors.leave_layers_from(n_layer);
    let rope = b.rotary(keys, d.pairs)?;
    let mixture = Mixture::read(keys, &mut b, d.mixture)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rotate(s, rope, d.head_norms)?;
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm(d.ffn_norm, x, s.ffn_norm)?;
        b.mixture(&mixture, s)?;
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}

/// How many of the file's layers guess further tokens, which nothing here asks for.
fn further_layers(keys: Keys<'_>, d: &Decoder, n_layer: u32) -> Result<u32, ModelError> {
    match d.keys.contains(&FURTHER_TOKENS) {
        true => Ok(keys.count(FURTHER_TOKENS, 0..=n_layer - 1)?.unwrap_or(0)),
        false => Ok(0),
    }
}
