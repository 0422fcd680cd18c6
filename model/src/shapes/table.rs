//! The table of generated models, `shapes.json`, and what a line of it means.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::vocabulary::VocabularyKind;

const TABLE: &str = include_str!("shapes.json");

/// A generated model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    name: &'static str,
    architecture: &'static str,
    vocabulary: VocabularyKind,
    reference: Option<&'static str>,
    keys: BTreeMap<&'static str, Key>,
    tensors: BTreeMap<&'static str, Tensor>,
    #[serde(default)]
    constants: BTreeMap<&'static str, Vec<f32>>,
}

/// A value of a key. Numbers written with a point are `f32`, others `u32`, negative ones `i32`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Key {
    Bool(bool),
    U32(u32),
    I32(i32),
    F32(f32),
    Str(&'static str),
    Bools(Vec<bool>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

/// A tensor with seeded weights.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Tensor {
    /// Seeded by its own name. Dimensions with the row length first.
    Own(Vec<usize>),
    /// A tensor that another kind of file splits or joins otherwise: its elements are runs of the elements of others.
    /// A run is the tensor whose name seeds it, its first element there, and their number.
    Of {
        dims: Vec<usize>,
        #[serde(borrow)]
        parts: Vec<(&'static str, usize, usize)>,
    },
}

impl Tensor {
    pub(super) fn dims(&self) -> &[usize] {
        match self {
            Tensor::Own(dims) | Tensor::Of { dims, .. } => dims,
        }
    }
}

/// Every shape of the table.
///
/// # Panics
/// If the checked-in table is damaged, which the first test sees.
pub(super) fn shapes() -> &'static [Shape] {
    static SHAPES: OnceLock<Vec<Shape>> = OnceLock::new();
    SHAPES.get_or_init(|| serde_json::from_str(TABLE).expect("the table that make.py writes"))
}

impl Shape {
    /// The name, such as `llama-gqa`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// `general.architecture` of the file.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// The reference logits that the shape has to reproduce, by name; several shapes can share them.
    pub fn reference(&self) -> Option<&'static str> {
        self.reference
    }

    pub(super) fn vocabulary(&self) -> VocabularyKind {
        self.vocabulary
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        self.keys.iter().map(|(key, value)| (*key, value))
    }

    pub(super) fn constants(&self) -> impl Iterator<Item = (&'static str, &[f32])> {
        self.constants.iter().map(|(name, values)| (*name, values.as_slice()))
    }

    /// Names and tensors, those of every layer one by one.
    pub(super) fn tensors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let layers = move |name: &&str| if name.starts_with("blk.*.") { 0..self.n_layer() } else { 0..1 };
        self.tensors.iter().flat_map(move |(name, tensor)| {
            layers(name).map(move |layer| (in_layer(name, &layer.to_string()), tensor))
        })
    }

    fn n_layer(&self) -> u32 {
        let key = format!("{}.block_count", self.architecture);
        match self.keys.get(key.as_str()) {
            Some(Key::U32(n)) => *n,
            _ => 0,
        }
    }
}

/// `blk.*.x` in the layer of the number, other names as they are.
pub(super) fn in_layer(name: &str, layer: &str) -> String {
    name.replacen("blk.*.", &format!("blk.{layer}."), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read_and_its_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = shapes().iter().map(Shape::name).collect();
        assert_eq!(names.len(), shapes().len());
    }

    #[test]
    fn every_shape_has_layers_and_an_embedding() {
        for shape in shapes() {
            assert!(shape.n_layer() > 0, "{}", shape.name);
            assert!(shape.tensors().any(|(name, _)| name == "token_embd.weight"), "{}", shape.name);
        }
    }

    #[test]
    fn numbers_keep_their_types() {
        let parse = |text: &'static str| serde_json::from_str::<Key>(text).unwrap();
        assert_eq!(parse("1"), Key::U32(1));
        assert_eq!(parse("-1"), Key::I32(-1));
        assert_eq!(parse("1.0"), Key::F32(1.0));
        assert_eq!(parse("[1.0, 2.0]"), Key::F32s(vec![1.0, 2.0]));
        assert_eq!(parse("[true, false]"), Key::Bools(vec![true, false]));
    }
}
