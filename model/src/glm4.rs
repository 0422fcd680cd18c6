//! GLM: ChatGLM 3 and GLM-4 of 2024 (`chatglm`), GLM-4 of 2025 (`glm4`), which has norms behind its parts too.
//!
//! Biases of queries, keys and values alone; pairs of neighbours in half of each head turn.
//! Source: Team GLM, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools" (2024).

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::Config;
use crate::{File, Loaded, ModelError};

pub(crate) fn chatglm(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "chatglm", false)
}

pub(crate) fn glm4(file: File<'_>) -> Result<Loaded, ModelError> {
    build(file, "glm4", true)
}

fn build(file: File<'_>, architecture: &'static str, post_norms: bool) -> Result<Loaded, ModelError> {
    let keys = file.keys(architecture);
    let config = Config::read(keys, NormKind::Rms, &[])?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(1.0)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        if post_norms {
            b.norm("post_attention_norm", s.attn_output, s.attn_output)?;
        }
        b.add(x, s.attn_output);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        if post_norms {
            b.norm("post_ffw_norm", s.ffn_down, s.ffn_down)?;
        }
        b.add(x, s.ffn_down);
    }
    b.head(x)?;
    b.finish()
}
