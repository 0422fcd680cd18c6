//! Rotary frequencies from the metadata.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

use llamay_plan::{Rope, RopePairs};

use crate::ModelError;
use crate::builder::Builder;
use crate::config::{Config, Keys, value_error};

// More than 1, whose logarithm YaRN divides by.
const BASES: RangeInclusive<f32> = 1.001..=1e12;
const FACTORS: RangeInclusive<f32> = 1e-6..=1e6;
const TURNS: RangeInclusive<f32> = 1e-3..=1e6;
const MOST_CONTEXT: u32 = 1 << 30;

/// The base of files that do not give one.
pub(crate) const BASE: f32 = 10_000.0;

/// The table of a model whose layers all turn alike, as the file says: its base, and its scaling.
pub(crate) fn read(
    keys: Keys<'_>,
    c: &Config,
    pairs: RopePairs,
    divisors: Option<&[f32]>,
) -> Result<Rope, ModelError> {
    let base = base(keys, "rope.freq_base")?.unwrap_or(BASE);
    let scaling = Scaling::read(keys, c.n_ctx_train)?;
    Ok(table(c, pairs, base, scaling, divisors))
}

/// As [`read`], with the divisors that the file has tensors of: Llama 3.1's, or those of LongRoPE.
pub(crate) fn read_with_divisors(
    keys: Keys<'_>,
    b: &mut Builder<'_>,
    pairs: RopePairs,
) -> Result<Rope, ModelError> {
    const SHORT: &str = "rope_factors_short.weight";
    const LONG: &str = "rope_factors_long.weight";
    let n = b.config.n_rot / 2;
    let short = b.tensors.positive_constants(SHORT, n)?;
    let long = b.tensors.positive_constants(LONG, n)?;
    let kind = keys.metadata.str(&keys.name("rope.scaling.type"))?;
    if short.is_none() && long.is_none() && kind != Some("longrope") {
        let divisors = b.tensors.positive_constants("rope_freqs.weight", n)?;
        return read(keys, &b.config, pairs, divisors.as_deref());
    }
    let missing = |name: &str| ModelError::MissingTensor { name: name.to_owned() };
    let short = short.ok_or_else(|| missing(SHORT))?;
    let long = long.ok_or_else(|| missing(LONG))?;
    let base = base(keys, "rope.freq_base")?.unwrap_or(BASE);
    keys.refuse("rope.scaling.factor", "a factor of all frequencies beside LongRoPE", &[0.0, 1.0])?;
    let n_ctx_original = keys.count("rope.scaling.original_context_length", 1..=MOST_CONTEXT)?;
    let n_ctx_original = n_ctx_original.unwrap_or(b.config.n_ctx_train) as usize;
    let magnitude = keys.float("rope.scaling.attn_factor", FACTORS)?.unwrap_or(1.0);
    // The model turns anew once a sequence outgrows the original length; cached keys cannot. So the context decides.
    let divisors = if b.n_ctx > n_ctx_original { long } else { short };
    Ok(table(&b.config, pairs, base, Scaling::Long(magnitude), Some(&divisors)))
}

/// The base of the frequencies at `key`, if the file gives one.
pub(crate) fn base(keys: Keys<'_>, key: &str) -> Result<Option<f32>, ModelError> {
    keys.float(key, BASES)
}

/// How frequencies are lowered so that a model reaches further than it was trained for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    None,
    /// All frequencies are divided by the factor.
    ///
    /// Source: Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation" (2023).
    Linear(f32),
    /// Each frequency has its divisor, in a tensor; sines and cosines grow by this factor.
    ///
    /// Source: Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (2024).
    Long(f32),
    Yarn(Yarn),
}

/// Low frequencies are divided by the factor, high ones stay, with a ramp between; sines and cosines grow a little.
///
/// Source: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models" (2023).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Yarn {
    factor: f64,
    /// Positions before the extension.
    n_ctx_original: f64,
    /// Pairs that turn more often than this over `n_ctx_original` positions keep their frequency.
    beta_fast: f64,
    /// Pairs that turn less often than this are divided by the whole factor.
    beta_slow: f64,
    /// The factor of every sine and cosine.
    magnitude: f64,
    /// Whether the ramp begins and ends at whole pairs.
    rounded: bool,
}

impl Scaling {
    /// Reads `rope.scaling.*`.
    pub(crate) fn read(keys: Keys<'_>, n_ctx_train: u32) -> Result<Scaling, ModelError> {
        let key = keys.name("rope.scaling.type");
        let kind = keys.metadata.str(&key)?;
        let what = match kind {
            Some("none") => return Ok(Scaling::None),
            None | Some("linear") => {
                keys.refuse("rope.scaling.attn_factor", "a factor of sines and cosines", &[0.0, 1.0])?;
                return Ok(factor(keys)?.map_or(Scaling::None, Scaling::Linear));
            }
            Some("yarn") => return Yarn::read(keys, n_ctx_train),
            Some("longrope") => "LongRoPE rope scaling",
            Some(_) => "this rope scaling",
        };
        let value = kind.map(|k| format!("{:?}", k.chars().take(80).collect::<String>())).unwrap_or_default();
        Err(ModelError::Feature { what, key, value })
    }
}

impl Scaling {
    /// As gpt-oss has it: YaRN's ramp begins and ends between pairs.
    pub(crate) fn unrounded(self) -> Scaling {
        match self {
            Scaling::Yarn(yarn) => Scaling::Yarn(Yarn { rounded: false, ..yarn }),
            other => other,
        }
    }
}

/// The factor of the scaling; `None` if there is none.
fn factor(keys: Keys<'_>) -> Result<Option<f32>, ModelError> {
    // Files from before October 2023 have the second key. 0 means that there is no scaling.
    for key in ["rope.scaling.factor", "rope.scale_linear"] {
        match keys.float(key, 0.0..=*FACTORS.end())? {
            None => {}
            Some(0.0) => return Ok(None),
            Some(factor) if FACTORS.contains(&factor) => return Ok(Some(factor)),
            Some(factor) => {
                let wanted = format!("it has to be from {:?} to {:?}, or 0", FACTORS.start(), FACTORS.end());
                return Err(value_error(keys, key, format_args!("{factor:?}"), wanted));
            }
        }
    }
    Ok(None)
}

impl Yarn {
    fn read(keys: Keys<'_>, n_ctx_train: u32) -> Result<Scaling, ModelError> {
        keys.refuse("rope.scaling.yarn_ext_factor", "a variant of YaRN rope scaling", &[1.0])?;
        let turns = |key: &str, default: f32| keys.float(key, TURNS).map(|v| f64::from(v.unwrap_or(default)));
        let n_ctx_original = keys.count("rope.scaling.original_context_length", 1..=MOST_CONTEXT)?;
        let factor = f64::from(keys.need_float("rope.scaling.factor", FACTORS)?);
        Ok(Scaling::Yarn(Yarn {
            factor,
            n_ctx_original: f64::from(n_ctx_original.unwrap_or(n_ctx_train)),
            beta_fast: turns("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: turns("rope.scaling.yarn_beta_slow", 1.0)?,
            magnitude: Yarn::magnitude(keys, factor)?,
            rounded: true,
        }))
    }

    /// The factor of every sine and cosine: sharper attention for the longer context.
    ///
    /// `yarn_attn_factor` is the whole of it. Without that, `yarn_log_multiplier` (DeepSeek's `mscale_all_dim`) divides
    /// the usual value by what it would be with that multiplier, and `attn_factor` multiplies it.
    fn magnitude(keys: Keys<'_>, factor: f64) -> Result<f64, ModelError> {
        let usual =
            |multiplier: f64| if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * libm::log(factor) + 1.0 };
        if let Some(whole) = keys.float("rope.scaling.yarn_attn_factor", FACTORS)? {
            return Ok(f64::from(whole));
        }
        let multiplier = keys.float("rope.scaling.yarn_log_multiplier", 0.0..=*FACTORS.end())?.unwrap_or(0.0);
        let more = keys.float("rope.scaling.attn_factor", FACTORS)?.unwrap_or(1.0);
        Ok(usual(1.0) / usual(f64::from(multiplier)) * f64::from(more))
    }

    /// By what the frequency of pair `i` is multiplied.
    fn slowing(self, i: usize, base: f64, n_rot: usize) -> f64 {
        // The pair, as a real number, that turns so often.
        let pair = |turns: f64| {
            n_rot as f64 * libm::log(self.n_ctx_original / (turns * 2.0 * PI)) / (2.0 * libm::log(base))
        };
        let (first, last) = (pair(self.beta_fast), pair(self.beta_slow));
        let (first, last) = if self.rounded { (first.floor(), last.ceil()) } else { (first, last) };
        let (first, last) = (first.max(0.0), last.min(n_rot as f64 - 1.0));
        // The ramp of a single point is steep, not undefined.
        let width = if first == last { 0.001 } else { last - first };
        let ramp = ((i as f64 - first) / width).clamp(0.0, 1.0);
        ramp / self.factor + (1.0 - ramp)
    }
}

/// The table: without scaling, pair `i` turns by `base^(-2i / n_rot) / divisors[i]` radians a position.
///
/// Powers and logarithms are the `libm` crate's, in double precision, so that the table has the same bits on every
/// machine.
pub(crate) fn table(
    c: &Config,
    pairs: RopePairs,
    base: f32,
    scaling: Scaling,
    divisors: Option<&[f32]>,
) -> Rope {
    let base = f64::from(base);
    let frequency = |i: usize| {
        let plain = libm::pow(base, -2.0 * i as f64 / c.n_rot as f64);
        let scaled = match scaling {
            Scaling::None | Scaling::Long(_) => plain,
            Scaling::Linear(factor) => plain / f64::from(factor),
            Scaling::Yarn(yarn) => plain * yarn.slowing(i, base, c.n_rot),
        };
        (scaled / f64::from(divisors.and_then(|d| d.get(i)).copied().unwrap_or(1.0))) as f32
    };
    let magnitude = match scaling {
        Scaling::None | Scaling::Linear(_) => 1.0,
        Scaling::Long(magnitude) => magnitude,
        Scaling::Yarn(yarn) => yarn.magnitude as f32,
    };
    Rope {
        frequencies: (0..c.n_rot / 2).map(frequency).collect(),
        pairs,
        magnitudes: vec![magnitude],
        magnitude_span: u32::MAX,
    }
}
