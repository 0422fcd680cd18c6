//! Finding tensors by name, and checking them against the metadata.

use std::collections::HashSet;

use llamay_gguf::{Gguf, TensorInfo};
use llamay_plan::Weight;

use crate::ModelError;
use crate::config::Config;
use crate::error::Quoted;

/// Tensors that files carry and no plan reads: tables that are computed from the metadata.
const HARMLESS: &[&str] = &["attn_rot_embd.weight", "attn.rot_embd", "attention.rotary_emb.inv_freq"];

/// A file's tensors, and which of them were asked for.
pub(crate) struct Tensors<'a> {
    gguf: &'a Gguf,
    used: HashSet<&'a str>,
    n_layer: u32,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(gguf: &'a Gguf) -> Tensors<'a> {
        Tensors { gguf, used: HashSet::new(), n_layer: u32::MAX }
    }

    /// What the file holds of layers from this one on is for something that is not done here, and merely unused.
    pub(crate) fn leave_layers_from(&mut self, n_layer: u32) {
        self.n_layer = n_layer;
    }

    /// The tensor, if the file has it.
    pub(crate) fn find(&mut self, name: &str) -> Option<&'a TensorInfo> {
        let tensor = self.gguf.tensor(name)?;
        self.used.insert(&tensor.name);
        Some(tensor)
    }

    /// The tensor, which the file has to have.
    pub(crate) fn need(&mut self, name: &str) -> Result<&'a TensorInfo, ModelError> {
        self.find(name).ok_or_else(|| ModelError::MissingTensor { name: name.to_owned() })
    }

    /// A matrix of `rows` rows of `cols`.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Weight, ModelError> {
        let tensor = self.need(name)?;
        check_shape(tensor, &[cols as u64, rows as u64])?;
        Ok(Weight { name: name.to_owned(), format: tensor.format()?, rows, cols })
    }

    /// A stack of `n` matrices of `rows` rows of `cols`, as one matrix of all rows.
    pub(crate) fn matrices(
        &mut self,
        name: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Weight, ModelError> {
        let tensor = self.need(name)?;
        check_shape(tensor, &[cols as u64, rows as u64, n as u64])?;
        Ok(Weight { name: name.to_owned(), format: tensor.format()?, rows: n * rows, cols })
    }

    /// A vector.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Weight, ModelError> {
        let tensor = self.need(name)?;
        check_shape(tensor, &[len as u64])?;
        Ok(Weight { name: name.to_owned(), format: tensor.format()?, rows: 1, cols: len })
    }

    /// A vector, if the file has it.
    pub(crate) fn optional_vector(&mut self, name: &str, len: usize) -> Result<Option<Weight>, ModelError> {
        match self.gguf.tensor(name) {
            Some(_) => self.vector(name, len).map(Some),
            None => Ok(None),
        }
    }

    /// The elements of a vector of positive numbers that is read at load, if the file has it.
    pub(crate) fn positive_constants(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(tensor) = self.find(name) else { return Ok(None) };
        check_shape(tensor, &[len as u64])?;
        let mut values = vec![0.0; len];
        tensor.format()?.decode(&self.gguf.data(tensor)?, &mut values);
        match values.iter().position(|v| !(v.is_finite() && *v > 0.0)) {
            Some(index) => Err(ModelError::Content { name: name.to_owned(), index, value: values[index] }),
            None => Ok(Some(values)),
        }
    }

    /// The tensors that nobody asked for. One within a layer is an error: it belongs to a computation that is not known.
    pub(crate) fn unused(&self, config: &Config) -> Result<Vec<String>, ModelError> {
        let mut unused = Vec::new();
        for tensor in self.gguf.tensors().iter().filter(|t| !self.used.contains(t.name.as_str())) {
            if HARMLESS.iter().any(|end| tensor.name.ends_with(end)) {
                continue;
            }
            let layer = layer_of(&tensor.name);
            if !tensor.name.starts_with("blk.") || layer.is_some_and(|layer| layer >= self.n_layer) {
                unused.push(tensor.name.clone());
                continue;
            }
            let Config { architecture, n_layer, .. } = *config;
            return Err(match layer {
                Some(layer) if layer >= n_layer => ModelError::Value {
                    key: format!("{architecture}.block_count"),
                    value: n_layer.to_string(),
                    wanted: format!(
                        "there is a tensor of layer {layer}, counted from 0: {}",
                        Quoted(&tensor.name)
                    ),
                },
                _ => ModelError::ForeignTensor {
                    name: tensor.name.clone(),
                    architecture: architecture.to_owned(),
                },
            });
        }
        Ok(unused)
    }
}

/// The layer of a tensor `blk.{layer}.*`.
fn layer_of(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Compares shapes; dimensions of 1 at the end do not count.
fn check_shape(tensor: &TensorInfo, expected: &[u64]) -> Result<(), ModelError> {
    let significant = |dims: &[u64]| dims.iter().rposition(|d| *d != 1).map_or(0, |last| last + 1);
    if tensor.dims[..significant(&tensor.dims)] == expected[..significant(expected)] {
        return Ok(());
    }
    Err(ModelError::Shape {
        name: tensor.name.clone(),
        found: tensor.dims.clone(),
        expected: expected.to_vec(),
    })
}
