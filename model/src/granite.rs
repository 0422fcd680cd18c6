//! Granite 3 and 4 (dense) and MiniCPM 1, 2 and 4: Llama with multipliers of embeddings, residual branches and logits.
//!
//! Sources: Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models with Scalable Training Strategies"
//! (2024); IBM, "Granite 3.0 Language Models" (2024). Both follow Yang et al., "Tensor Programs V" (2022).

use std::ops::RangeInclusive;

use llamay_plan::{Gating, Nonlinearity, NormKind, RopePairs};

use crate::builder::{Attention, Builder};
use crate::config::{Config, Keys, value_error};
use crate::{File, Loaded, ModelError};

/// Far beyond what models have, and near enough to 1 that the inverse is finite.
const MULTIPLIERS: RangeInclusive<f32> = 1e-6..=1e6;

/// The keys of the multipliers.
pub(crate) const MULTIPLIER_KEYS: &[&str] = &["embedding_scale", "residual_scale", "logit_scale"];

/// The multipliers of a model; that of scores is [`Config::attention_scale`].
#[derive(Clone, Copy)]
pub(crate) struct Multipliers {
    /// Of each token's embedding.
    pub(crate) embedding: f32,
    /// Of what attention and feed-forward parts add to the stream.
    pub(crate) residual: f32,
    /// By what logits are divided.
    pub(crate) logits: f32,
}

impl Multipliers {
    /// None.
    pub(crate) const NEUTRAL: Multipliers = Multipliers { embedding: 1.0, residual: 1.0, logits: 1.0 };

    /// Those of MiniCPM's files from before they had keys.
    fn of_minicpm(c: &Config) -> Multipliers {
        Multipliers {
            embedding: 12.0,
            residual: (1.4 / f64::from(c.n_layer).sqrt()) as f32,
            logits: (c.n_embd as f64 / 256.0) as f32,
        }
    }

    /// The file's, where it gives them.
    pub(crate) fn read(keys: Keys<'_>, default: Multipliers) -> Result<Multipliers, ModelError> {
        let read = |key, default| match keys.float(key, 0.0..=*MULTIPLIERS.end())? {
            None => Ok(default),
            // No multiplier.
            Some(0.0) => Ok(1.0),
            Some(scale) if MULTIPLIERS.contains(&scale) => Ok(scale),
            Some(scale) => {
                let wanted = format!("it has to be at least {:?}, or 0", MULTIPLIERS.start());
                Err(value_error(keys, key, format_args!("{scale:?}"), wanted))
            }
        };
        Ok(Multipliers {
            embedding: read("embedding_scale", default.embedding)?,
            residual: read("residual_scale", default.residual)?,
            logits: read("logit_scale", default.logits)?,
        })
    }
}

pub(crate) fn granite(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("granite");
    let config = Config::read(keys, NormKind::Rms, MULTIPLIER_KEYS)?;
    // Of Granite alone, this says whether there is a rotary embedding at all.
    let rotates = keys.flag("rope.scaling.finetuned", true)?;
    build(file, keys, config, Multipliers::NEUTRAL, rotates)
}

pub(crate) fn minicpm(file: File<'_>) -> Result<Loaded, ModelError> {
    let keys = file.keys("minicpm");
    let config = Config::read(keys, NormKind::Rms, MULTIPLIER_KEYS)?;
    let default = Multipliers::of_minicpm(&config);
    build(file, keys, config, default, true)
}

fn build(
    file: File<'_>,
    keys: Keys<'_>,
    config: Config,
    default: Multipliers,
    rotates: bool,
) -> Result<Loaded, ModelError> {
    let multipliers = Multipliers::read(keys, default)?;
    let (n_layer, scale) = (config.n_layer, config.attention_scale());

    let mut b = Builder::new(file, config);
    let rope = b.rotary(keys, RopePairs::Interleaved)?;

    let x = b.embed(multipliers.embedding)?;
    let s = b.layer_slots();
    for layer in 0..n_layer {
        b.enter_layer(layer);

        b.norm("attn_norm", x, s.attn_norm)?;
        b.qkv(s.attn_norm, s)?;
        if rotates {
            b.rope(s.q, rope);
            b.rope(s.k, rope);
        }
        b.attend(s, Attention::scaled(scale))?;
        b.linear(s.attn, &[("attn_output", s.attn_output)])?;
        b.add_scaled(x, s.attn_output, multipliers.residual);

        b.norm("ffn_norm", x, s.ffn_norm)?;
        b.gated_ffn(s, Gating::Product(Nonlinearity::Silu))?;
        b.add_scaled(x, s.ffn_down, multipliers.residual);
    }
    b.head(x)?;
    if multipliers.logits != 1.0 {
        b.scale_logits(1.0 / multipliers.logits);
    }
    b.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipliers_of_minicpm_2b_are_the_published_ones() {
        // scale_emb, scale_depth / sqrt(num_hidden_layers) and hidden_size / dim_model_base of its configuration.
        let Multipliers { embedding, residual, logits } =
            Multipliers::of_minicpm(&Config::sized(40, 2304, 36, 64));
        assert_eq!((embedding, residual, logits), (12.0, (1.4 / 40f64.sqrt()) as f32, 9.0));
    }
}
