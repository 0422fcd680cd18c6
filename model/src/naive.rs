//! A plan executed in the plainest way, in double precision: what a plan means, for tests of plans and of executors.
//!
//! No cache, no pages, no batches, no quantised activations: one sequence, all of its positions at once.

use llamay_gguf::Gguf;
use llamay_plan::{Nonlinearity, Op, Plan, Rope, RopePairs, SlotId, WeightId};

use crate::ModelError;

/// The logits of every token of one sequence that starts at position 0: a row of `n_vocab` a token.
///
/// # Errors
/// If a weight cannot be read.
///
/// # Panics
/// If the plan is not [valid](crate::validate), or a token is not in the vocabulary.
pub fn logits(gguf: &Gguf, plan: &Plan, tokens: &[u32]) -> Result<Vec<Vec<f64>>, ModelError> {
    let weights = plan.weights.iter().map(|w| decode(gguf, &w.name)).collect::<Result<_, _>>()?;
    let mut naive = Naive { plan, weights, slots: vec![vec![]; plan.slots.len()] };
    for step in &plan.steps {
        naive.step(&step.op, tokens);
    }
    Ok(naive.take(plan.logits))
}

fn decode(gguf: &Gguf, name: &str) -> Result<Vec<f32>, ModelError> {
    let missing = || ModelError::MissingTensor { name: name.to_owned() };
    let tensor = gguf.tensor(name).ok_or_else(missing)?;
    let mut values = vec![0.0; tensor.n_elements() as usize];
    tensor.format()?.decode(&gguf.data(tensor)?, &mut values);
    Ok(values)
}

/// A row a token.
type Rows = Vec<Vec<f64>>;

struct Naive<'a> {
    plan: &'a Plan,
    weights: Vec<Vec<f32>>,
    slots: Vec<Rows>,
}

impl Naive<'_> {
    fn step(&mut self, op: &Op, tokens: &[u32]) {
        match *op {
            Op::Embed { weight, out, scale } => {
                let rows =
                    tokens.iter().map(|t| map(&self.row(weight, *t as usize), |w| w * f64::from(scale)));
                self.slots[usize::from(out.0)] = rows.collect();
            }
            Op::RmsNorm { x, weight, eps, heads, out } => {
                let w = self.row(weight, 0);
                let norm = |row: &Vec<f64>| {
                    row.chunks(row.len() / heads).flat_map(|x| rms_norm(x, &w, eps)).collect()
                };
                self.slots[usize::from(out.0)] = self.rows(x).iter().map(norm).collect();
            }
            Op::Linear { x, ref projections } => {
                for p in projections {
                    let n = self.plan.weight_of(p.weight).rows;
                    let bias = p.bias.map_or(vec![0.0; n], |b| self.row(b, 0));
                    let matrix: Rows = (0..n).map(|i| self.row(p.weight, i)).collect();
                    let product =
                        |x: &Vec<f64>| matrix.iter().zip(&bias).map(|(w, b)| dot(w, x) + b).collect();
                    self.slots[usize::from(p.out.0)] = self.rows(x).iter().map(product).collect();
                }
            }
            Op::Rope { x, heads: _, head_dim, rope } => {
                let rope = &self.plan.ropes[usize::from(rope.0)];
                let mut rows = self.take(x);
                for (position, row) in rows.iter_mut().enumerate() {
                    row.chunks_mut(head_dim).for_each(|head| rotate(head, position, rope));
                }
                self.slots[usize::from(x.0)] = rows;
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window } => {
                let layer = self.plan.kv[usize::from(kv.0)];
                let (k, v, d) = (self.rows(k), self.rows(v), layer.head_dim);
                let queries_per_key = heads / layer.heads;
                let attend = |(i, q): (usize, &Vec<f64>)| {
                    let first = window.map_or(0, |w| (i + 1).saturating_sub(w as usize));
                    let head = |h: usize| {
                        let at = h / queries_per_key * d..(h / queries_per_key + 1) * d;
                        let scores = (first..=i).map(|j| dot(&q[h * d..(h + 1) * d], &k[j][at.clone()]));
                        let weights = softmax(scores.map(|s| s * f64::from(scale)).collect());
                        weighted_sum(&weights, v[first..=i].iter().map(|row| &row[at.clone()]), d)
                    };
                    (0..heads).flat_map(head).collect()
                };
                self.slots[usize::from(out.0)] = self.rows(q).iter().enumerate().map(attend).collect();
            }
            Op::Gate { gate, up, out, f } => {
                let rows = zip(self.rows(gate), self.rows(up), |g, u| nonlinearity(f, g) * u);
                self.slots[usize::from(out.0)] = rows;
            }
            Op::Add { x, y, out } => {
                self.slots[usize::from(out.0)] = zip(self.rows(x), self.rows(y), |x, y| x + y);
            }
            // Every token's logits are wanted.
            Op::Select { x, out } => self.slots[usize::from(out.0)] = self.rows(x).clone(),
        }
    }

    fn rows(&self, slot: SlotId) -> &Rows {
        &self.slots[usize::from(slot.0)]
    }

    fn take(&mut self, slot: SlotId) -> Rows {
        std::mem::take(&mut self.slots[usize::from(slot.0)])
    }

    fn row(&self, weight: WeightId, row: usize) -> Vec<f64> {
        let cols = self.plan.weight_of(weight).cols;
        let row = &self.weights[weight.0 as usize][row * cols..(row + 1) * cols];
        row.iter().map(|w| f64::from(*w)).collect()
    }
}

fn map(row: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    row.iter().map(|x| f(*x)).collect()
}

fn zip(x: &Rows, y: &Rows, f: impl Fn(f64, f64) -> f64) -> Rows {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| f(*x, *y)).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn rms_norm(x: &[f64], weight: &[f64], eps: f32) -> Vec<f64> {
    let root = (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(x, w)| x / root * w).collect()
}

fn rotate(head: &mut [f64], position: usize, rope: &Rope) {
    let n_pairs = rope.frequencies.len();
    for (i, frequency) in rope.frequencies.iter().enumerate() {
        let (a, b) = match rope.pairs {
            RopePairs::Interleaved => (2 * i, 2 * i + 1),
            RopePairs::Halves => (i, i + n_pairs),
        };
        let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
        let magnitude = f64::from(rope.magnitude);
        let (x, y) = (head[a] * magnitude, head[b] * magnitude);
        (head[a], head[b]) = (x * cos - y * sin, y * cos + x * sin);
    }
}

fn softmax(scores: Vec<f64>) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps = map(&scores, |s| (s - max).exp());
    let sum: f64 = exps.iter().sum();
    map(&exps, |e| e / sum)
}

fn weighted_sum<'a>(weights: &[f64], rows: impl Iterator<Item = &'a [f64]>, len: usize) -> Vec<f64> {
    weights
        .iter()
        .zip(rows)
        .fold(vec![0.0; len], |sum, (w, row)| sum.iter().zip(row).map(|(s, x)| s + w * x).collect())
}

fn nonlinearity(f: Nonlinearity, x: f64) -> f64 {
    match f {
        Nonlinearity::Silu => x / (1.0 + (-x).exp()),
        Nonlinearity::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}
