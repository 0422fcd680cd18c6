//! LoRA adapters: small matrices `A` and `B` beside a model's own, so that `W x` becomes `W x + scale B (A x)`.
//!
//! An adapter is a GGUF file of pairs of tensors, named after the tensor that they change: `X.lora_a` and `X.lora_b`. It is
//! applied to a [plan](crate::Plan), not to weights: [`apply`] writes the two products and the sum as steps of their own
//! behind each step that reads `X`, so a backend needs nothing that it does not have anyway, and the model's weights stay as
//! they are, quantised or not.
//!
//! Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).

mod apply;
mod error;

use std::collections::BTreeMap;

use llamay_formats::Format;
use llamay_gguf::{Gguf, TensorInfo};

pub use apply::{Applied, Sum, apply, tensor_of};
pub use error::LoraError;

/// The tensor whose adapter changes a look-up, not a product.
const TOKEN_EMBD: &str = "token_embd.weight";

/// What a file of this kind says of itself in `general.type`.
const GENERAL_TYPE: &str = "adapter";

/// An adapter's metadata and table of tensors, checked for themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    architecture: String,
    alpha: f32,
    pairs: Vec<Pair>,
    unused: Vec<String>,
}

/// The two matrices that change a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The model's tensor.
    pub tensor: String,
    /// Rows of `A`, and the length of a row of `B`; positive.
    pub rank: usize,
    /// `[rank, cols]` for a tensor of rows of `cols`; for the token embedding `[n_vocab, rank]`, which is looked up.
    pub a: Half,
    /// `[rows, rank]`; for the token embedding `[n_embd, rank]`.
    pub b: Half,
}

/// One matrix of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// Its name in the adapter's file.
    pub name: String,
    /// Its type.
    pub format: Format,
    /// Its rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
}

/// Whether a file says that it is an adapter of some kind.
pub fn is_adapter(gguf: &Gguf) -> bool {
    matches!(gguf.metadata().str("general.type"), Ok(Some(GENERAL_TYPE)))
}

impl Adapter {
    /// Reads the metadata and the table of tensors.
    ///
    /// # Errors
    /// A file that is no LoRA adapter, or one with a tensor of which it is not known what it does.
    pub fn read(gguf: &Gguf) -> Result<Adapter, LoraError> {
        let metadata = gguf.metadata();
        if !is_adapter(gguf) {
            let found = metadata.str("general.type")?.map(str::to_owned);
            return Err(LoraError::NoAdapter { found });
        }
        let kind = metadata.need_str("adapter.type")?;
        if kind != "lora" {
            return Err(LoraError::Kind { found: kind.to_owned() });
        }
        if metadata.contains("adapter.alora.invocation_tokens") {
            return Err(LoraError::Activated);
        }
        let architecture = metadata.need_str("general.architecture")?.to_owned();
        // Without an alpha, or with 0, the product counts as it is.
        let alpha = metadata.f32("adapter.lora.alpha")?.unwrap_or(0.0);
        if !alpha.is_finite() {
            return Err(LoraError::Alpha { alpha });
        }
        let (pairs, unused) = pairs(gguf)?;
        Ok(Adapter { architecture, alpha, pairs, unused })
    }

    /// `general.architecture`: that of the models which the adapter is for.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// `adapter.lora.alpha`; 0 if the file has none.
    pub fn alpha(&self) -> f32 {
        self.alpha
    }

    /// The pairs, by the name of the tensor that they change; at least one.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The pair that changes this tensor.
    pub fn pair(&self, tensor: &str) -> Option<&Pair> {
        self.pairs.binary_search_by(|p| p.tensor.as_str().cmp(tensor)).ok().map(|at| &self.pairs[at])
    }

    /// Vectors of norms that some tools put beside the pairs. The field's programs run such adapters without them, and so
    /// does llamay; they deserve a warning.
    pub fn unused(&self) -> &[String] {
        &self.unused
    }

    /// The least and the greatest rank.
    pub fn ranks(&self) -> (usize, usize) {
        let ranks = self.pairs.iter().map(|p| p.rank);
        ranks.fold((usize::MAX, 0), |(least, most), rank| (least.min(rank), most.max(rank)))
    }

    /// Elements of all pairs.
    pub fn n_params(&self) -> u64 {
        let elements = |half: &Half| half.rows as u64 * half.cols as u64;
        self.pairs.iter().map(|p| elements(&p.a) + elements(&p.b)).sum()
    }

    /// The factor of a pair's product before the user's: `alpha / rank`.
    pub fn factor(&self, pair: &Pair) -> f64 {
        if self.alpha == 0.0 { 1.0 } else { f64::from(self.alpha) / pair.rank as f64 }
    }

    /// An error unless the adapter is for this architecture.
    ///
    /// # Errors
    /// [`LoraError::Architecture`].
    pub fn check_architecture(&self, model: &str) -> Result<(), LoraError> {
        if self.architecture == model {
            return Ok(());
        }
        Err(LoraError::Architecture { adapter: self.architecture.clone(), model: model.to_owned() })
    }
}

impl Pair {
    /// Whether the pair changes the look-up of tokens. Its `A` is then transposed: a row for each token.
    pub fn is_lookup(&self) -> bool {
        self.tensor == TOKEN_EMBD
    }

    /// An error unless the pair fits a tensor of `rows` rows of `cols`.
    ///
    /// # Errors
    /// [`LoraError::Shape`].
    pub fn check_shape(&self, rows: usize, cols: usize) -> Result<(), LoraError> {
        let rank = self.rank;
        let (a, b) = match self.is_lookup() {
            true => ([rank, rows], [rank, cols]),
            false => ([cols, rank], [rank, rows]),
        };
        let fits = |half: &Half, dims: [usize; 2]| {
            if [half.cols, half.rows] == dims {
                return Ok(());
            }
            Err(LoraError::Shape {
                name: half.name.clone(),
                found: [half.cols, half.rows],
                expected: dims,
                tensor: self.tensor.clone(),
                model: [cols, rows],
            })
        };
        fits(&self.a, a)?;
        fits(&self.b, b)
    }
}

/// The file's tensors as pairs, sorted, and the norms beside them.
fn pairs(gguf: &Gguf) -> Result<(Vec<Pair>, Vec<String>), LoraError> {
    let mut halves: BTreeMap<&str, [Option<&TensorInfo>; 2]> = BTreeMap::new();
    let mut unused = Vec::new();
    for tensor in gguf.tensors() {
        let name = tensor.name.as_str();
        let half = name.strip_suffix(".lora_a").map(|base| (base, 0));
        match half.or_else(|| name.strip_suffix(".lora_b").map(|base| (base, 1))) {
            Some((base, at)) => halves.entry(base).or_default()[at] = Some(tensor),
            None if name.ends_with("_norm.weight") => unused.push(name.to_owned()),
            None => return Err(LoraError::Foreign { name: name.to_owned() }),
        }
    }
    if halves.is_empty() {
        return Err(LoraError::Empty);
    }
    let pairs = halves.into_iter().map(|(base, [a, b])| match (a, b) {
        (Some(a), Some(b)) => pair(base, a, b),
        (a, _) => Err(LoraError::Half {
            name: format!("{base}.{}", if a.is_some() { "lora_b" } else { "lora_a" }),
            other: format!("{base}.{}", if a.is_some() { "lora_a" } else { "lora_b" }),
        }),
    });
    Ok((pairs.collect::<Result<_, _>>()?, unused))
}

fn pair(base: &str, a: &TensorInfo, b: &TensorInfo) -> Result<Pair, LoraError> {
    if a.dims.iter().skip(2).chain(b.dims.iter().skip(2)).any(|d| *d != 1) {
        return Err(LoraError::Experts { tensor: base.to_owned() });
    }
    let (a, b) = (half(a)?, half(b)?);
    let pair = Pair { tensor: base.to_owned(), rank: b.cols, a, b };
    let rank_of_a = if pair.is_lookup() { pair.a.cols } else { pair.a.rows };
    if rank_of_a != pair.rank || pair.rank == 0 {
        let (a, b) = (pair.a, pair.b);
        return Err(LoraError::Ranks {
            a: a.name,
            dims_a: [a.cols, a.rows],
            b: b.name,
            dims_b: [b.cols, b.rows],
        });
    }
    Ok(pair)
}

fn half(tensor: &TensorInfo) -> Result<Half, LoraError> {
    // A tensor's elements fit a file, and an empty one is refused for its rank or by the model's shape.
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Ok(Half {
        name: tensor.name.clone(),
        format: tensor.format()?,
        rows: size(tensor.n_rows()),
        cols: size(tensor.row_len()),
    })
}
