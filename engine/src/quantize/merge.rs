//! Adapters that become part of the weights: `W + scale B A` instead of `W`.

use llamay_gguf::{Gguf, TensorInfo};
use llamay_model::lora::{Adapter, Half, LoraError, Pair};

use crate::{AdapterSource, Error};

/// The adapters to merge into a model's weights.
pub(super) struct Merge<'a> {
    adapters: Vec<(&'a AdapterSource, Adapter)>,
}

/// What an adapter adds to one tensor.
pub(super) struct Product {
    a: Vec<f32>,
    b: Vec<f32>,
    rank: usize,
    cols: usize,
    factor: f64,
    /// For the token embedding, whose `A` has a row for each of its rows.
    lookup: bool,
}

impl<'a> Merge<'a> {
    /// Checks that the adapters fit the model's tensors.
    pub(super) fn new(model: &Gguf, adapters: &'a [AdapterSource]) -> Result<Merge<'a>, Error> {
        let mut merge = Merge { adapters: Vec::with_capacity(adapters.len()) };
        for source in adapters {
            let adapter = source.read()?;
            check(model, &adapter, source.scale).map_err(|e| Error::adapter(&source.name, e))?;
            merge.adapters.push((source, adapter));
        }
        Ok(merge)
    }

    /// Whether an adapter changes the tensor.
    pub(super) fn changes(&self, tensor: &TensorInfo) -> bool {
        self.adapters.iter().any(|(_, adapter)| adapter.pair(&tensor.name).is_some())
    }

    /// What is added to the tensor, in the order of the adapters.
    pub(super) fn products(&self, tensor: &TensorInfo) -> Result<Vec<Product>, Error> {
        let product = |(source, adapter): &(&AdapterSource, Adapter)| -> Option<Result<Product, Error>> {
            let pair = adapter.pair(&tensor.name)?;
            let factor = adapter.factor(pair) * f64::from(source.scale);
            let product = Product::read(&source.gguf, pair, factor);
            Some(product.map_err(|e| Error::adapter(&source.name, e)))
        };
        self.adapters.iter().filter_map(product).collect()
    }
}

/// An error unless the adapter fits the model. A plan is not asked, since the model need not be one that runs.
fn check(model: &Gguf, adapter: &Adapter, scale: f32) -> Result<(), LoraError> {
    adapter.check_architecture(model.metadata().need_str("general.architecture")?)?;
    for pair in adapter.pairs() {
        let name = || pair.tensor.clone();
        let tensor = model.tensor(&pair.tensor).ok_or_else(|| LoraError::Unknown { tensor: name() })?;
        let [cols, rows] = match tensor.dims[..] {
            [cols, rows] => [cols, rows].map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            [_, _, ..] => return Err(LoraError::Experts { tensor: name() }),
            _ => return Err(LoraError::NoMatrix { tensor: name() }),
        };
        if pair.is_lookup() && model.tensor("output.weight").is_none() {
            return Err(LoraError::Tied { tensor: name() });
        }
        pair.check_shape(rows, cols)?;
        if !(adapter.factor(pair) * f64::from(scale)).is_finite() {
            return Err(LoraError::Scale { scale, alpha: adapter.alpha(), rank: pair.rank });
        }
    }
    Ok(())
}

fn decode(gguf: &Gguf, half: &Half) -> Result<Vec<f32>, LoraError> {
    let tensor = gguf.tensor(&half.name).ok_or_else(|| LoraError::Unknown { tensor: half.name.clone() })?;
    let mut values = vec![0.0; half.rows * half.cols];
    half.format.decode(&gguf.data(tensor)?, &mut values);
    Ok(values)
}

impl Product {
    fn read(gguf: &Gguf, pair: &Pair, factor: f64) -> Result<Product, LoraError> {
        Ok(Product {
            a: decode(gguf, &pair.a)?,
            b: decode(gguf, &pair.b)?,
            rank: pair.rank,
            cols: if pair.is_lookup() { pair.b.rows } else { pair.a.cols },
            factor,
            lookup: pair.is_lookup(),
        })
    }

    /// Adds it to whole rows of the tensor, of which `weights` begins with `first_row`. Sums are in double precision.
    pub(super) fn add_to(&self, first_row: usize, weights: &mut [f32]) {
        let mut sums = vec![0.0f64; self.cols];
        for (row, weights) in weights.chunks_exact_mut(self.cols).enumerate() {
            let row = first_row + row;
            sums.fill(0.0);
            if self.lookup {
                let a = &self.a[row * self.rank..][..self.rank];
                for (sum, b) in sums.iter_mut().zip(self.b.chunks_exact(self.rank)) {
                    *sum = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                }
            } else {
                let b = &self.b[row * self.rank..][..self.rank];
                for (b, a) in b.iter().zip(self.a.chunks_exact(self.cols)) {
                    sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += f64::from(*b) * f64::from(*a));
                }
            }
            for (weight, sum) in weights.iter_mut().zip(&sums) {
                *weight = (f64::from(*weight) + self.factor * sum) as f32;
            }
        }
    }
}
