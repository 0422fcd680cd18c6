//! Granite 3 and 4 with mixtures of experts: Mixtral with Granite's multipliers, and in some models a shared expert.
//!
//! Source: IBM, "Granite 3.0 Language Models" (2024).

use llamay_plan::{NormKind, RopePairs, Scoring};

use crate::builder::{Attention, Builder, Mixture, Usual};
use crate::config::Config;
use crate::granite::Multipliers;
use crate::{File, Loaded, ModelError};

/// The softmax of the chosen experts alone; that of all, made to sum up to 1, is the same.
const MIXTURE: Usual = Usual { scoring: Scoring::SoftmaxOfChosen, ..Usual::MIXTRAL };

const KEYS: &[&str] =
    &["expert_count", "expert_shared_count", "embedding_scale", "residual_scale", "logit_scale"];

pub(crate) fn build(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("granitemoe");
    let config = Config::read(keys, NormKind::Rms, KEYS)?;
    let multipliers = Multipliers::read(keys, Multipliers::NEUTRAL)?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;
    let mixture = Mixture::read(keys, &mut b, MIXTURE)?;

    let x = b.embed(multipliers.embedding)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        b.rope(s.q, rope);
        b.rope(s.k, rope);
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add_scaled(x, s.attn_output, multipliers.residual);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.mixture(&mixture, s)?;
        b.add_scaled(x, s.ffn_down, multipliers.residual);
    }
    b.head(x)?;
    if multipliers.logits != 1.0 {
        b.scale_logits(1.0 / multipliers.logits);
    }
    b.finish()
}
