//! Rotary frequencies from the metadata.

use llamay_plan::{Rope, RopePairs};

use crate::ModelError;
use crate::config::{Config, Keys};

const BASES: std::ops::RangeInclusive<f32> = 1.0..=1e12;
const FACTORS: std::ops::RangeInclusive<f32> = 1e-6..=1e6;

/// The base of the frequencies at `key`, if the file gives one.
pub(crate) fn base(keys: Keys<'_>, key: &str) -> Result<Option<f32>, ModelError> {
    keys.float(key, BASES)
}

/// By how much positions are compressed: the factor of linear scaling, 1 without scaling.
///
/// Source: Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation" (2023).
pub(crate) fn linear_factor(keys: Keys<'_>) -> Result<f32, ModelError> {
    let kind_key = keys.name("rope.scaling.type");
    let kind = keys.metadata.str(&kind_key)?;
    let what = match kind {
        Some("none") => return Ok(1.0),
        None | Some("linear") => {
            // Files from before 2023-10 have the older key; 0 means that there is no scaling.
            let factor = match keys.float("rope.scaling.factor", 0.0..=*FACTORS.end())? {
                Some(factor) => Some(factor),
                None => keys.float("rope.scale_linear", 0.0..=*FACTORS.end())?,
            };
            return match factor {
                None | Some(0.0) => Ok(1.0),
                Some(factor) if FACTORS.contains(&factor) => Ok(factor),
                Some(factor) => Err(ModelError::Value {
                    key: keys.name("rope.scaling.factor"),
                    value: factor.to_string(),
                    wanted: format!("it has to be from {} to {}", FACTORS.start(), FACTORS.end()),
                }),
            };
        }
        Some("yarn") => "YaRN rope scaling",
        Some("longrope") => "LongRoPE rope scaling",
        Some(_) => "this rope scaling",
    };
    let value = kind.map(|k| format!("{:?}", k.chars().take(80).collect::<String>())).unwrap_or_default();
    Err(ModelError::Feature { what, key: kind_key, value })
}

/// The table: pair `i` turns by `base^(-2i / n_rot) / factor / divisors[i]` radians a position.
///
/// The power is the `libm` crate's, in double precision, so that the table has the same bits on every machine.
pub(crate) fn table(c: &Config, pairs: RopePairs, base: f32, factor: f32, divisors: Option<&[f32]>) -> Rope {
    let frequency = |i: usize| {
        let exponent = -2.0 * i as f64 / c.n_rot as f64;
        let divisor = divisors.and_then(|d| d.get(i)).copied().unwrap_or(1.0);
        (libm::pow(f64::from(base), exponent) / f64::from(factor) / f64::from(divisor)) as f32
    };
    Rope { frequencies: (0..c.n_rot / 2).map(frequency).collect(), pairs, magnitude: 1.0 }
}
