//! Rotary frequencies from the metadata.

use std::f64::consts::PI;
use std::ops::RangeInclusive;

use llamay_plan::{Rope, RopePairs};

use crate::ModelError;
use crate::config::{Config, Keys, value_error};

// More than 1, whose logarithm YaRN divides by.
const BASES: RangeInclusive<f32> = 1.001..=1e12;
const FACTORS: RangeInclusive<f32> = 1e-6..=1e6;
const TURNS: RangeInclusive<f32> = 1e-3..=1e6;
const MOST_CONTEXT: u32 = 1 << 30;

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
}

impl Scaling {
    /// Reads `rope.scaling.*`.
    pub(crate) fn read(keys: Keys<'_>, n_ctx_train: u32) -> Result<Scaling, ModelError> {
        let key = keys.name("rope.scaling.type");
        let kind = keys.metadata.str(&key)?;
        let what = match kind {
            Some("none") => return Ok(Scaling::None),
            None | Some("linear") => {
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
                return Err(value_error(keys, key, factor, wanted));
            }
        }
    }
    Ok(None)
}

impl Yarn {
    fn read(keys: Keys<'_>, n_ctx_train: u32) -> Result<Scaling, ModelError> {
        let what = "a variant of YaRN rope scaling";
        keys.refuse("rope.scaling.attn_factor", what, &[0.0, 1.0])?;
        keys.refuse("rope.scaling.yarn_attn_factor", what, &[1.0])?;
        keys.refuse("rope.scaling.yarn_ext_factor", what, &[1.0])?;
        keys.refuse("rope.scaling.yarn_log_multiplier", what, &[0.0])?;
        let turns = |key: &str, default: f32| keys.float(key, TURNS).map(|v| f64::from(v.unwrap_or(default)));
        let n_ctx_original = keys.count("rope.scaling.original_context_length", 1..=MOST_CONTEXT)?;
        Ok(Scaling::Yarn(Yarn {
            factor: f64::from(keys.need_float("rope.scaling.factor", FACTORS)?),
            n_ctx_original: f64::from(n_ctx_original.unwrap_or(n_ctx_train)),
            beta_fast: turns("rope.scaling.yarn_beta_fast", 32.0)?,
            beta_slow: turns("rope.scaling.yarn_beta_slow", 1.0)?,
        }))
    }

    /// By what the frequency of pair `i` is multiplied.
    fn slowing(self, i: usize, base: f64, n_rot: usize) -> f64 {
        // The pair, as a real number, that turns so often.
        let pair = |turns: f64| {
            n_rot as f64 * libm::log(self.n_ctx_original / (turns * 2.0 * PI)) / (2.0 * libm::log(base))
        };
        let first = pair(self.beta_fast).floor().max(0.0);
        let last = pair(self.beta_slow).ceil().min(n_rot as f64 - 1.0);
        // The ramp of a single point is steep, not undefined.
        let width = if first == last { 0.001 } else { last - first };
        let ramp = ((i as f64 - first) / width).clamp(0.0, 1.0);
        ramp / self.factor + (1.0 - ramp)
    }

    /// The factor of every sine and cosine: sharper attention for the longer context.
    fn magnitude(self) -> f64 {
        if self.factor <= 1.0 { 1.0 } else { 0.1 * libm::log(self.factor) + 1.0 }
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
            Scaling::None => plain,
            Scaling::Linear(factor) => plain / f64::from(factor),
            Scaling::Yarn(yarn) => plain * yarn.slowing(i, base, c.n_rot),
        };
        (scaled / f64::from(divisors.and_then(|d| d.get(i)).copied().unwrap_or(1.0))) as f32
    };
    let magnitude = match scaling {
        Scaling::None | Scaling::Linear(_) => 1.0,
        Scaling::Yarn(yarn) => yarn.magnitude() as f32,
    };
    Rope {
        frequencies: (0..c.n_rot / 2).map(frequency).collect(),
        pairs,
        magnitudes: vec![magnitude],
        magnitude_span: u32::MAX,
    }
}
