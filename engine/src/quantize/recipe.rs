//! Which tensor gets which format.

use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo};

use crate::Error;

/// What a model is to be written as: one format, or a mixture that the field has a name for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    name: String,
    base: Format,
    /// The format of the matrices that lose most: values of attention, and what leads out of the feed-forward part.
    better: Option<Format>,
    /// The format of experts, which are most of a mixture of experts.
    experts: Option<Format>,
    pure: bool,
}

/// A tensor's format in the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) format: Format,
    /// The format that the recipe wanted, if the rows are no whole blocks of it.
    pub(super) instead_of: Option<Format>,
}

/// Names of mixtures: the format of most matrices, and the better one of some.
const MIXTURES: [(&str, Format, Format); 2] =
    [("Q4_K_M", Format::Q4_K, Format::Q6_K), ("Q5_K_M", Format::Q5_K, Format::Q6_K)];

/// The name of the mixture that gpt-oss is published in: blocks of four bits for the experts, of eight for the rest.
const MXFP4_MOE: &str = "MXFP4_MOE";

/// Names that others use for one format throughout.
const ALIASES: [(&str, Format); 3] =
    [("Q3_K_S", Format::Q3_K), ("Q4_K_S", Format::Q4_K), ("Q5_K_S", Format::Q5_K)];

/// Matrices that stay as they are: small, and read by routers, convolutions or look-ups rather than by matmuls.
const KEPT: [&str; 7] = [
    "_norm.weight",
    "ffn_gate_inp.weight",
    "position_embd.weight",
    "token_types.weight",
    "ssm_conv1d.weight",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
];

impl Recipe {
    /// The recipe of this name, such as `Q8_0` or `Q4_K_M`, in any letter case. A `pure` one makes no exception for the
    /// output matrix and the few others that would get a better format.
    ///
    /// # Errors
    /// A name that is none, or a format that cannot be written.
    pub fn named(name: &str, pure: bool) -> Result<Recipe, Error> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        let recipe = |name: &str, base, better: Option<Format>| Recipe {
            name: name.to_owned(),
            base,
            better: better.filter(|_| !pure),
            experts: None,
            pure,
        };
        if is(MXFP4_MOE) {
            return Ok(Recipe { experts: Some(Format::MXFP4), ..recipe(MXFP4_MOE, Format::Q8_0, None) });
        }
        if let Some((name, base, better)) = MIXTURES.iter().find(|(n, ..)| is(n)) {
            return Ok(recipe(name, *base, Some(*better)));
        }
        let alias = ALIASES.iter().find(|(n, _)| is(n)).map(|(_, format)| *format);
        match alias.or_else(|| Format::from_name(name)) {
            Some(format) if Recipe::makes(format) => Ok(recipe(format.name(), format, None)),
            Some(format) => Err(Error::Unfit(format!(
                "{format} can be read but not written; use one of {}",
                Recipe::names().join(", ")
            ))),
            None => Err(Error::Unfit(format!(
                "{name} is no format that can be written; use one of {}",
                Recipe::names().join(", ")
            ))),
        }
    }

    /// Every name that [`Recipe::named`] takes.
    pub fn names() -> Vec<&'static str> {
        let formats = Format::ALL.iter().filter(|f| Recipe::makes(**f)).map(|f| f.name());
        let mixtures = MIXTURES.iter().map(|(name, ..)| *name).chain([MXFP4_MOE]);
        formats.chain(mixtures).chain(ALIASES.iter().map(|(name, _)| *name)).collect()
    }

    /// Whether a model's matrices can sensibly be of this format: it can be written, and holds real numbers as weights
    /// rather than activations.
    pub fn makes(format: Format) -> bool {
        let other = matches!(
            format,
            Format::F64 | Format::I8 | Format::I16 | Format::I32 | Format::I64 | Format::Q8_1 | Format::Q8_K
        );
        format.can_encode() && !other
    }

    /// The name, in the field's spelling.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `general.file_type`, where the format's specification has one.
    pub(super) fn file_type(&self) -> Option<u32> {
        if self.experts.is_some() {
            return Some(38);
        }
        Some(match (self.base, self.better) {
            (Format::F32, _) => 0,
            (Format::F16, _) => 1,
            (Format::Q4_0, _) => 2,
            (Format::Q4_1, _) => 3,
            (Format::Q8_0, _) => 7,
            (Format::Q5_0, _) => 8,
            (Format::Q5_1, _) => 9,
            (Format::Q2_K, _) => 10,
            (Format::Q3_K, _) => 11,
            (Format::Q4_K, None) => 14,
            (Format::Q4_K, Some(_)) => 15,
            (Format::Q5_K, None) => 16,
            (Format::Q5_K, Some(_)) => 17,
            (Format::Q6_K, _) => 18,
            (Format::IQ4_NL, _) => 25,
            (Format::IQ4_XS, _) => 30,
            (Format::BF16, _) => 32,
            (Format::TQ1_0, _) => 36,
            (Format::TQ2_0, _) => 37,
            (Format::MXFP4, _) => 38,
            _ => return None,
        })
    }

    /// The format of every tensor, in file order.
    pub(super) fn formats(&self, input: &Gguf) -> Result<Vec<Chosen>, Error> {
        let model = Traits::of(input);
        let choose = |tensor: &TensorInfo| -> Result<Chosen, Error> {
            let own = tensor.format()?;
            let stays = tensor.n_rows() < 2
                || !tensor.name.ends_with(".weight")
                || KEPT.iter().any(|kept| tensor.name.ends_with(kept))
                || matches!(own, Format::I8 | Format::I16 | Format::I32 | Format::I64);
            if stays {
                return Ok(Chosen { format: own, instead_of: None });
            }
            let wanted = match self.experts {
                Some(experts) if is_expert(&tensor.name) => experts,
                _ => self.wanted(&tensor.name, model),
            };
            let format = fitting(wanted, tensor.row_len());
            Ok(Chosen { format, instead_of: (format != wanted).then_some(wanted) })
        };
        input.tensors().iter().map(choose).collect()
    }

    /// The format that the recipe gives to a matrix of this name.
    fn wanted(&self, name: &str, model: Traits) -> Format {
        // Every logit depends on the output matrix, which is the embedding where that is tied.
        let is_output = name == "output.weight" || (model.tied && name == "token_embd.weight");
        let spared = match layer_of(name) {
            _ if self.pure => None,
            _ if is_output => Some(if model.falcon { Format::Q8_0 } else { Format::Q6_K }),
            Some((layer, stem)) => self.spared(layer, stem, model),
            None => None,
        };
        spared.filter(|better| bits(self.base) < bits(*better)).unwrap_or(self.base)
    }

    /// The better format that some matrices of a layer get. `stem` is the name within the layer: that of a matrix of
    /// experts goes on after `ffn_down`, with a number or a word.
    fn spared(&self, layer: u32, stem: &str, model: Traits) -> Option<Format> {
        let better = self.better.filter(|_| sensitive(layer, model.n_layer));
        let is_value = matches!(stem, "attn_v.weight" | "attn_qkv.weight" | "attn_kv_b.weight");
        // Beside Mixtral's experts, its attention is small: about 3 % of all weights.
        if model.n_expert == 8 && (is_value || stem == "attn_k.weight") {
            return Some(Format::Q8_0);
        }
        if model.n_expert == 8 && stem == "attn_output.weight" {
            let legacy = matches!(self.base, Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::MXFP4);
            return (!legacy).then_some(Format::Q5_K);
        }
        if stem.starts_with("ffn_down")
            && model.falcon
            && self.base == Format::Q4_K
            && layer >= model.n_layer / 16
        {
            return better.and(Some(Format::Q5_K));
        }
        better.filter(|_| is_value || stem.starts_with("ffn_down"))
    }
}

/// What a recipe asks of a model.
#[derive(Clone, Copy, Debug)]
struct Traits {
    /// The embedding is the output matrix too.
    tied: bool,
    n_layer: u32,
    n_expert: u32,
    /// Its matrices after the feed-forward part lose less than others'.
    falcon: bool,
}

impl Traits {
    fn of(input: &Gguf) -> Traits {
        let metadata = input.metadata();
        let architecture = metadata.str("general.architecture").ok().flatten().unwrap_or_default();
        let n_expert = metadata.u32(&format!("{architecture}.expert_count")).ok().flatten();
        Traits {
            tied: input.tensor("output.weight").is_none(),
            n_layer: n_layer(input),
            n_expert: n_expert.unwrap_or(0),
            falcon: architecture == "falcon",
        }
    }
}

/// The first and the last eighth of the layers, and every third of those between.
fn sensitive(layer: u32, n_layer: u32) -> bool {
    let (first, last) = (n_layer / 8, n_layer - n_layer.div_ceil(8));
    layer < first || layer >= last || (layer - first) % 3 == 2
}

/// The layer in a tensor's name, and the rest of the name.
fn layer_of(name: &str) -> Option<(u32, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

/// Whether a matrix holds experts: a stack of them, such as `ffn_up_exps.weight`, or one, such as `ffn_up.3.weight`.
fn is_expert(name: &str) -> bool {
    let stem = layer_of(name).and_then(|(_, rest)| rest.strip_suffix(".weight"));
    let number = |stem: &str| stem.rsplit_once('.').is_some_and(|(_, n)| n.parse::<u32>().is_ok());
    stem.is_some_and(|stem| stem.ends_with("_exps") || number(stem))
}

/// One more than the highest layer in a tensor's name.
fn n_layer(input: &Gguf) -> u32 {
    let layers = input.tensors().iter().filter_map(|t| layer_of(&t.name));
    layers.map(|(layer, _)| layer.saturating_add(1)).max().unwrap_or(0)
}

/// Bits of a weight.
fn bits(format: Format) -> f64 {
    8.0 * format.block_bytes() as f64 / format.block_len() as f64
}

/// The wanted format where the row is whole blocks of it, else the one nearest in size with blocks of 32, else half
/// precision.
fn fitting(wanted: Format, row_len: u64) -> Format {
    let fits = |f: Format| row_len.is_multiple_of(f.block_len() as u64);
    if fits(wanted) {
        return wanted;
    }
    let legacy = match wanted {
        Format::Q6_K => Format::Q8_0,
        Format::Q5_K => Format::Q5_1,
        Format::Q4_K => Format::Q5_0,
        Format::IQ4_XS => Format::IQ4_NL,
        _ => Format::Q4_0,
    };
    if fits(legacy) { legacy } else { Format::F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_field_and_wrong_ones_list_them() {
        for name in Recipe::names() {
            let recipe = Recipe::named(&name.to_lowercase(), false).unwrap();
            assert!(recipe.base.can_encode(), "{name}");
        }
        assert!(Recipe::names().contains(&"Q4_K_M") && !Recipe::names().contains(&"Q8_K"));
        let message = Recipe::named("Q4_K_L", false).unwrap_err().to_string();
        assert!(message.contains("Q4_K_L") && message.contains("Q8_0"), "{message}");
    }

    #[test]
    fn rows_that_do_not_fit_get_a_format_of_like_size() {
        assert_eq!(fitting(Format::Q4_K, 512), Format::Q4_K);
        assert_eq!(fitting(Format::Q4_K, 576), Format::Q5_0);
        assert_eq!(fitting(Format::Q6_K, 576), Format::Q8_0);
        assert_eq!(fitting(Format::Q6_K, 100), Format::F16);
        assert_eq!(fitting(Format::Q2_K, 96), Format::Q4_0);
        for format in Format::ALL.iter().copied().filter(|f| Recipe::makes(*f)) {
            assert!(fitting(format, 32).can_encode() && fitting(format, 7).can_encode());
        }
    }

    #[test]
    fn the_output_and_the_sensitive_matrices_are_spared() {
        let model = |tied| Traits { tied, n_layer: 12, n_expert: 0, falcon: false };
        let mixture = Recipe::named("Q4_K_M", false).unwrap();
        for (name, tied, want) in [
            ("token_embd.weight", true, Format::Q6_K),
            ("token_embd.weight", false, Format::Q4_K),
            ("output.weight", false, Format::Q6_K),
            ("blk.0.attn_q.weight", false, Format::Q4_K),
            ("blk.0.attn_v.weight", false, Format::Q6_K),
            ("blk.0.attn_qkv.weight", false, Format::Q6_K),
            ("blk.0.ffn_down.weight", false, Format::Q6_K),
            ("blk.0.ffn_down_exps.weight", false, Format::Q6_K),
            ("blk.0.ffn_down_shexp.weight", false, Format::Q6_K),
            ("blk.0.ffn_down.3.weight", false, Format::Q6_K),
            ("blk.0.ffn_up_exps.weight", false, Format::Q4_K),
            ("blk.1.ffn_down.weight", false, Format::Q4_K),
            ("blk.10.ffn_down.weight", false, Format::Q6_K),
        ] {
            assert_eq!(mixture.wanted(name, model(tied)), want, "{name}");
        }
        let pure = Recipe::named("Q4_K_M", true).unwrap();
        assert_eq!(pure.wanted("output.weight", model(false)), Format::Q4_K);
        let large = Recipe::named("Q8_0", false).unwrap();
        assert_eq!(large.wanted("output.weight", model(false)), Format::Q8_0, "never made worse");
    }

    #[test]
    fn the_attention_of_eight_experts_is_spared() {
        let model = Traits { tied: false, n_layer: 12, n_expert: 8, falcon: false };
        for (recipe, name, want) in [
            ("Q4_K_M", "blk.1.attn_k.weight", Format::Q8_0),
            ("Q4_K_M", "blk.1.attn_v.weight", Format::Q8_0),
            ("Q4_K_M", "blk.1.attn_output.weight", Format::Q5_K),
            ("Q4_K_M", "blk.1.attn_q.weight", Format::Q4_K),
            ("Q4_K_M", "blk.1.ffn_down_exps.weight", Format::Q4_K),
            ("Q4_0", "blk.1.attn_output.weight", Format::Q4_0),
            ("Q6_K", "blk.1.attn_output.weight", Format::Q6_K),
            ("F16", "blk.1.attn_v.weight", Format::F16),
        ] {
            assert_eq!(Recipe::named(recipe, false).unwrap().wanted(name, model), want, "{recipe} {name}");
        }
        assert_eq!(Recipe::named("Q4_K_M", true).unwrap().wanted("blk.1.attn_v.weight", model), Format::Q4_K);
    }

    #[test]
    fn experts_are_told_by_their_names() {
        for name in ["blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_up_exps.weight", "blk.0.ffn_down.3.weight"] {
            assert!(is_expert(name), "{name}");
        }
        for name in
            ["blk.0.ffn_up_shexp.weight", "blk.0.ffn_up.weight", "blk.0.attn_q.weight", "output.weight"]
        {
            assert!(!is_expert(name), "{name}");
        }
    }

    #[test]
    fn falcon_is_given_less() {
        let model = Traits { tied: false, n_layer: 32, n_expert: 0, falcon: true };
        let mixture = Recipe::named("Q4_K_M", false).unwrap();
        for (name, want) in [
            ("output.weight", Format::Q8_0),
            ("blk.1.ffn_down.weight", Format::Q6_K),
            ("blk.2.ffn_down.weight", Format::Q5_K),
            ("blk.5.ffn_down.weight", Format::Q4_K),
            ("blk.2.attn_qkv.weight", Format::Q6_K),
        ] {
            assert_eq!(mixture.wanted(name, model), want, "{name}");
        }
    }
}
