//! A plan executed in the plainest way, in double precision: what a plan means, for tests of plans and of executors.
//!
//! No cache, no pages, no batches, no quantised activations: one sequence, all of its positions at once.

use llamay_gguf::Gguf;
use llamay_plan::{
    ExpertProjection, Gating, Index, Nonlinearity, NormKind, Op, Plan, Rope, RopePairs, Rows as Part,
    Scoring, SlotId, WeightId,
};

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
            Op::Embed { weight, index, out, scale } => {
                let row = |(position, token): (usize, &u32)| {
                    let at = match index {
                        Index::Token => *token as usize,
                        Index::Position => position,
                    };
                    map(&self.row(weight, at), |w| w * f64::from(scale))
                };
                self.slots[usize::from(out.0)] = tokens.iter().enumerate().map(row).collect();
            }
            Op::Norm { x, kind, weight, bias, eps, heads, out } => {
                let len = self.plan.slot_of(x).width / heads;
                let (w, b) = (self.per_head(weight, 1.0, heads, len), self.per_head(bias, 0.0, heads, len));
                let norm = |row: &Vec<f64>| {
                    row.chunks(len)
                        .zip(w.iter().zip(&b))
                        .flat_map(|(x, (w, b))| norm(kind, x, w, b, eps))
                        .collect()
                };
                self.slots[usize::from(out.0)] = self.rows(x).iter().map(norm).collect();
            }
            Op::Linear { x, ref projections } => {
                for p in projections {
                    let n = self.plan.slot_of(p.out).width;
                    let bias =
                        p.bias.map_or(vec![0.0; n], |b| self.row(b.weight, 0)[b.first_row..][..n].to_vec());
                    let product = |x: &Vec<f64>| self.product(p.weight, &bias, x);
                    self.slots[usize::from(p.out.0)] = self.rows(x).iter().map(product).collect();
                }
            }
            Op::ExpertLinear { x, cols, chosen, ref projections } => {
                for p in projections {
                    let rows = self.rows(x).iter().zip(self.rows(chosen));
                    let rows = rows.map(|(x, chosen)| self.expert_products(p, cols, x, chosen)).collect();
                    self.slots[usize::from(p.out.0)] = rows;
                }
            }
            Op::Route { x, bias, scoring, normalize, scale, chosen, weights } => {
                let n_used = self.plan.slot_of(chosen).width;
                let bias = bias.map(|b| self.row(b, 0));
                let routes: Vec<(Vec<f64>, Vec<f64>)> = (self.rows(x).iter())
                    .map(|scores| {
                        route(scores, bias.as_deref(), scoring, normalize, f64::from(scale), n_used)
                    })
                    .collect();
                (self.slots[usize::from(chosen.0)], self.slots[usize::from(weights.0)]) =
                    routes.into_iter().unzip();
            }
            Op::Combine { x, weights, out } => {
                let width = self.plan.slot_of(out).width;
                let combine = |(x, w): (&Vec<f64>, &Vec<f64>)| weighted_sum(w, x.chunks(width), width);
                let rows = self.rows(x).iter().zip(self.rows(weights)).map(combine).collect();
                self.slots[usize::from(out.0)] = rows;
            }
            Op::Rope { x, heads: _, head_dim, rope } => {
                let rope = &self.plan.ropes[usize::from(rope.0)];
                let mut rows = self.take(x);
                for (position, row) in rows.iter_mut().enumerate() {
                    row.chunks_mut(head_dim).for_each(|head| rotate(head, position, rope));
                }
                self.slots[usize::from(x.0)] = rows;
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window, softcap, sinks } => {
                let layer = self.plan.kv[usize::from(kv.0)];
                let (k, v, d) = (self.rows(k), self.rows(v), layer.head_dim);
                let queries_per_key = heads / layer.heads;
                let sinks = sinks.map(|s| self.row(s, 0));
                let attend = |(i, q): (usize, &Vec<f64>)| {
                    let first = window.map_or(0, |w| (i + 1).saturating_sub(w as usize));
                    let head = |h: usize| {
                        let at = h / queries_per_key * d..(h / queries_per_key + 1) * d;
                        let scores = (first..=i).map(|j| dot(&q[h * d..(h + 1) * d], &k[j][at.clone()]));
                        let capped = |s: f64| softcap.map_or(s, |cap| soft_cap(s, cap));
                        let scores = scores.map(|s| capped(s * f64::from(scale)));
                        // A sink is one more score, whose weight goes nowhere.
                        let weights =
                            softmax(&scores.chain(sinks.as_ref().map(|s| s[h])).collect::<Vec<_>>());
                        weighted_sum(&weights, v[first..=i].iter().map(|row| &row[at.clone()]), d)
                    };
                    (0..heads).flat_map(head).collect()
                };
                self.slots[usize::from(out.0)] = self.rows(q).iter().enumerate().map(attend).collect();
            }
            Op::Gate { gate, up, out, f } => {
                let rows = zip(self.rows(gate), self.rows(up), |g, u| join(f, g, u));
                self.slots[usize::from(out.0)] = rows;
            }
            Op::Activate { x, f, out } => self.map_rows(x, out, |x| nonlinearity(f, x)),
            Op::Add { x, y, scale, out } => {
                let rows = zip(self.rows(x), self.rows(y), |x, y| x + f64::from(scale) * y);
                self.slots[usize::from(out.0)] = rows;
            }
            Op::Scale { x, scale, out } => self.map_rows(x, out, |x| x * f64::from(scale)),
            Op::Softcap { x, cap, out } => self.map_rows(x, out, |x| soft_cap(x, cap)),
            // Every token's logits are wanted.
            Op::Select { slots: _ } => {}
        }
    }

    fn rows(&self, slot: SlotId) -> &Rows {
        &self.slots[usize::from(slot.0)]
    }

    fn take(&mut self, slot: SlotId) -> Rows {
        std::mem::take(&mut self.slots[usize::from(slot.0)])
    }

    fn map_rows(&mut self, x: SlotId, out: SlotId, f: impl Fn(f64) -> f64) {
        self.slots[usize::from(out.0)] = self.rows(x).iter().map(|row| map(row, &f)).collect();
    }

    /// Some rows of a matrix times `x`, plus `bias`.
    fn product(&self, part: Part, bias: &[f64], x: &[f64]) -> Vec<f64> {
        let first = part.first_row * x.len();
        let rows = self.weights[part.weight.0 as usize][first..].chunks(x.len());
        let products = rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>());
        bias.iter().zip(products).map(|(b, y)| y + b).collect()
    }

    /// The products of one token's chosen experts, one behind the other.
    fn expert_products(&self, p: &ExpertProjection, cols: usize, x: &[f64], chosen: &[f64]) -> Vec<f64> {
        let rows = self.plan.slot_of(p.out).width / chosen.len();
        let inputs: Vec<&[f64]> =
            if x.len() == cols { vec![x; chosen.len()] } else { x.chunks(cols).collect() };
        let one = |(expert, x): (&f64, &[f64])| {
            let expert = *expert as usize;
            let bias = p.bias.map_or(vec![0.0; rows], |b| self.row(b, expert));
            self.product(p.experts[expert], &bias, x)
        };
        chosen.iter().zip(inputs).flat_map(one).collect()
    }

    /// A norm's weights for each head, whether the heads share them or not.
    fn per_head(&self, weight: Option<WeightId>, otherwise: f64, heads: usize, len: usize) -> Rows {
        let Some(id) = weight else { return vec![vec![otherwise; len]; heads] };
        let shared = self.plan.weight_of(id).rows == 1;
        (0..heads).map(|h| self.row(id, if shared { 0 } else { h })).collect()
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

fn norm(kind: NormKind, x: &[f64], weight: &[f64], bias: &[f64], eps: f32) -> Vec<f64> {
    let mean = match kind {
        NormKind::Rms => 0.0,
        NormKind::Layer => x.iter().sum::<f64>() / x.len() as f64,
    };
    let x = map(x, |x| x - mean);
    let root = (dot(&x, &x) / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(weight.iter().zip(bias)).map(|(x, (w, b))| x / root * w + b).collect()
}

/// The chosen experts' numbers, the best first, and their weights.
fn route(
    scores: &[f64],
    bias: Option<&[f64]>,
    scoring: Scoring,
    normalize: bool,
    scale: f64,
    n_used: usize,
) -> (Vec<f64>, Vec<f64>) {
    let scores = match scoring {
        Scoring::Softmax => softmax(scores),
        Scoring::SoftmaxOfChosen => scores.to_vec(),
        Scoring::Sigmoid => map(scores, |s| nonlinearity(Nonlinearity::Sigmoid, s)),
    };
    let rank = |e: usize| scores[e] + bias.map_or(0.0, |b| b[e]);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)));
    order.truncate(n_used);
    let mut weights: Vec<f64> = order.iter().map(|e| scores[*e]).collect();
    if scoring == Scoring::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    let sum = if normalize { weights.iter().sum() } else { 1.0 };
    (order.iter().map(|e| *e as f64).collect(), map(&weights, |w| w / sum * scale))
}

fn rotate(head: &mut [f64], position: usize, rope: &Rope) {
    let n_pairs = rope.frequencies.len();
    for (i, frequency) in rope.frequencies.iter().enumerate() {
        let (a, b) = match rope.pairs {
            RopePairs::Interleaved => (2 * i, 2 * i + 1),
            RopePairs::Halves => (i, i + n_pairs),
        };
        let (sin, cos) = (position as f64 * f64::from(*frequency)).sin_cos();
        let magnitude = f64::from(rope.magnitude(position as u32));
        let (x, y) = (head[a] * magnitude, head[b] * magnitude);
        (head[a], head[b]) = (x * cos - y * sin, y * cos + x * sin);
    }
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps = map(scores, |s| (s - max).exp());
    let sum: f64 = exps.iter().sum();
    map(&exps, |e| e / sum)
}

fn weighted_sum<'a>(weights: &[f64], rows: impl Iterator<Item = &'a [f64]>, len: usize) -> Vec<f64> {
    weights
        .iter()
        .zip(rows)
        .fold(vec![0.0; len], |sum, (w, row)| sum.iter().zip(row).map(|(s, x)| s + w * x).collect())
}

fn soft_cap(x: f64, cap: f32) -> f64 {
    f64::from(cap) * (x / f64::from(cap)).tanh()
}

fn nonlinearity(f: Nonlinearity, x: f64) -> f64 {
    match f {
        Nonlinearity::Silu => x / (1.0 + (-x).exp()),
        Nonlinearity::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Nonlinearity::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Nonlinearity::Relu => x.max(0.0),
        Nonlinearity::ReluSquared => x.max(0.0).powi(2),
        Nonlinearity::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

fn join(f: Gating, gate: f64, up: f64) -> f64 {
    match f {
        Gating::Product(f) => nonlinearity(f, gate) * up,
        Gating::ClippedSwiglu => {
            let (alpha, limit) = (f64::from(Gating::CLIPPED_ALPHA), f64::from(Gating::CLIPPED_LIMIT));
            let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
            gate * nonlinearity(Nonlinearity::Sigmoid, alpha * gate) * (up + 1.0)
        }
    }
}
