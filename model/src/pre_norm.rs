//! Decoders whose layers are attention and then a feed-forward part, each behind a norm and added to the stream: what
//! Llama is, but for a non-linearity, norms, or the order in which a head's elements turn.
//!
//! - Arcee AFM: Arcee AI (2025); the squared ReLU is of So et al., "Primer" (2021).
//! - Baichuan 7B: Baichuan (2023). Baichuan 2 has the rows of its head normalised, which is a matter of the file.
//! - ERNIE 4.5: Baidu, "ERNIE 4.5 Technical Report" (2025).
//! - EXAONE 3: LG AI Research, "EXAONE 3.0 7.8B Instruction Tuned Language Model" (2024).
//! - Hunyuan 1, dense: the published models of Tencent (2025), 0.5B to 7B.
//! - InternLM 2: Cai et al., "InternLM2 Technical Report" (2024).
//! - Nemotron 4: Parmar et al., "Nemotron-4 15B Technical Report" (2024).
//! - Orion: Chen et al., "Orion-14B: Open-source Multilingual Large Language Models" (2024).
//! - Phi 3, 3.5 and 4: Microsoft, "Phi-3 Technical Report: A Highly Capable Language Model Locally on Your Phone" (2024).
//! - Qwen 2, 2.5 and 3: Qwen Team, "Qwen2 Technical Report" (2024) and "Qwen3 Technical Report" (2025).
//! - Seed-OSS: ByteDance (2025).
//! - StarCoder 2: Lozhkov et al., "StarCoder 2 and The Stack v2: The Next Generation" (2024).
//! - XVERSE: Shenzhen Yuanxiang Technology (2023).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder, HeadNorms};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

/// The feed-forward part.
enum Ffn {
    /// Three matrices: `down(f(gate(x)) * up(x))`.
    Gated(Nonlinearity),
    /// Two matrices: `down(f(up(x)))`.
    Plain(Nonlinearity),
}

/// What such a decoder is apart from its sizes.
struct Decoder {
    name: &'static str,
    norm: NormKind,
    pairs: RopePairs,
    head_norms: HeadNorms,
    ffn: Ffn,
    /// What files call the norm before the feed-forward part.
    ffn_norm: &'static str,
    /// Whether a file may ask for a window in all layers.
    window: bool,
}

/// Llama with the name of another architecture.
const fn llama(name: &'static str) -> Decoder {
    Decoder {
        name,
        norm: NormKind::Rms,
        pairs: RopePairs::Interleaved,
        head_norms: HeadNorms::None,
        ffn: Ffn::Gated(Nonlinearity::Silu),
        ffn_norm: "ffn_norm",
        window: false,
    }
}

pub(crate) fn arcee(file: File<'_>) -> Result<Loaded, ModelError> {
    let ffn = Ffn::Plain(Nonlinearity::ReluSquared);
    build(file, &Decoder { ffn, ..llama("arcee") })
}

pub(crate) fn baichuan(file: File<'_>) -> Result<Loaded, ModelError> {
    // Files of the 13B models, which have no rotary embedding, differ in nothing but their size.
    const LAYERS_OF_13B: u32 = 40;
    let keys = file.keys("baichuan");
    if keys.count("block_count", 0..=u32::MAX)? == Some(LAYERS_OF_13B) {
        let value = format!("{LAYERS_OF_13B}, as in Baichuan 13B");
        return Err(ModelError::Feature { what: "ALiBi", key: keys.name("block_count"), value });
    }
    build(file, &llama("baichuan"))
}

pub(crate) fn ernie4_5(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &llama("ernie4_5"))
}

pub(crate) fn exaone(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &Decoder { pairs: RopePairs::Halves, ..llama("exaone") })
}

pub(crate) fn hunyuan(file: File<'_>) -> Result<Loaded, ModelError> {
    let (pairs, head_norms) = (RopePairs::Halves, HeadNorms::BehindRope);
    build(file, &Decoder { pairs, head_norms, ..llama("hunyuan-dense") })
}

pub(crate) fn internlm2(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &llama("internlm2"))
}

pub(crate) fn nemotron(file: File<'_>) -> Result<Loaded, ModelError> {
    // The weights of the norms come with the model's `1 +` in them.
    let ffn = Ffn::Plain(Nonlinearity::ReluSquared);
    let (norm, pairs) = (NormKind::Layer, RopePairs::Halves);
    build(file, &Decoder { norm, pairs, ffn, ..llama("nemotron") })
}

pub(crate) fn orion(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &Decoder { norm: NormKind::Layer, pairs: RopePairs::Halves, ..llama("orion") })
}

pub(crate) fn phi3(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &Decoder { pairs: RopePairs::Halves, window: true, ..llama("phi3") })
}

pub(crate) fn qwen2(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &Decoder { pairs: RopePairs::Halves, ..llama("qwen2") })
}

pub(crate) fn qwen3(file: File<'_>) -> Result<Loaded, ModelError> {
    let (pairs, head_norms) = (RopePairs::Halves, HeadNorms::BeforeRope);
    build(file, &Decoder { pairs, head_norms, ..llama("qwen3") })
}

pub(crate) fn seed_oss(file: File<'_>) -> Result<Loaded, ModelError> {
    let ffn_norm = "post_attention_norm";
    build(file, &Decoder { pairs: RopePairs::Halves, ffn_norm, ..llama("seed_oss") })
}

pub(crate) fn starcoder2(file: File<'_>) -> Result<Loaded, ModelError> {
    let ffn = Ffn::Plain(Nonlinearity::GeluTanh);
    let (norm, pairs) = (NormKind::Layer, RopePairs::Halves);
    build(file, &Decoder { norm, pairs, ffn, window: true, ..llama("starcoder2") })
}

pub(crate) fn xverse(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, &llama("xverse"))
}

fn build(file: File<'_>, d: &Decoder) -> Result<Loaded, ModelError> {
    let keys = file.keys(d.name);
    let known: &[&str] = if d.window { &["attention.sliding_window"] } else { &[] };
    let config = Config::read(keys, d.norm, known)?;
    let window = keys.window()?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, d.pairs)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rotate(s, rope, d.head_norms)?;
        b.attend(s, Attention { window, ..Attention::scaled(scale) })?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add(x, s.attn_output);

        b.norm(d.ffn_norm, x, s.ffn_norm)?;
        match d.ffn {
            Ffn::Gated(f) => b.gated_ffn(s, Gating::Product(f))?,
            Ffn::Plain(f) => b.plain_ffn(s.ffn_norm, s, f)?,
        }
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
