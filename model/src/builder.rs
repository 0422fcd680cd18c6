//! Writing a plan step by step: each method finds and checks the tensors of its step.

mod experts;

pub(crate) use experts::{Mixture, Usual, Width};

use llamay_gguf::Gguf;
use llamay_plan::{
    Gating, Index, KvLayer, Nonlinearity, Op, Plan, Projection, Rope, RopeId, RopePairs, Rows, SlotId,
    WeightId,
};

use crate::config::{Config, Keys};
use crate::rope;
use crate::tensors::Tensors;
use crate::{File, Loaded, ModelError};

/// Entries of a vocabulary; token ids are `u32`, and no model has a hundredth of this.
const MOST_VOCAB: u64 = 1 << 28;

/// A plan that is being written.
pub(crate) struct Builder<'a> {
    pub(crate) config: Config,
    pub(crate) tensors: Tensors<'a>,
    /// Positions that a sequence may get.
    pub(crate) n_ctx: usize,
    gguf: &'a Gguf,
    plan: Plan,
    layer: Option<u32>,
}

/// The activations of a layer of attention and a gated feed-forward part, which all layers share.
#[derive(Clone, Copy)]
pub(crate) struct LayerSlots {
    pub(crate) attn_norm: SlotId,
    pub(crate) q: SlotId,
    pub(crate) k: SlotId,
    pub(crate) v: SlotId,
    pub(crate) attn: SlotId,
    pub(crate) attn_output: SlotId,
    pub(crate) ffn_norm: SlotId,
    pub(crate) ffn_gate: SlotId,
    pub(crate) ffn_up: SlotId,
    pub(crate) ffn_down: SlotId,
}

/// What a layer's attention asks for beside its queries, keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Attention {
    /// The factor of every score.
    pub(crate) scale: f32,
    /// Positions that a token sees, itself among them; `None` for all.
    pub(crate) window: Option<u32>,
    /// The bound of scores.
    pub(crate) softcap: Option<f32>,
    /// Whether each head has a sink, `attn_sinks.weight`.
    pub(crate) sinks: bool,
}

impl Attention {
    /// Plain attention over all positions.
    pub(crate) fn scaled(scale: f32) -> Attention {
        Attention { scale, window: None, softcap: None, sinks: false }
    }
}

/// The norms `attn_q_norm` and `attn_k_norm` of queries and keys.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum HeadNorms {
    None,
    /// Of each head, before it rotates.
    BeforeRope,
    /// The same in larger models alone, whose files have the tensors.
    BeforeRopeIfThere,
    /// Of each head, once it has rotated.
    BehindRope,
    /// Of whole rows, before their heads rotate.
    OfRows,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(file: File<'a>, config: Config) -> Builder<'a> {
        let gguf = file.gguf;
        let plan = Plan {
            architecture: config.architecture.to_owned(),
            n_layer: config.n_layer,
            n_embd: config.n_embd,
            n_ctx_train: config.n_ctx_train,
            ..Plan::default()
        };
        let n_ctx = file.options.n_ctx.unwrap_or(config.n_ctx_train as usize);
        Builder { config, tensors: Tensors::new(gguf), n_ctx, gguf, plan, layer: None }
    }

    /// The slots of a layer.
    pub(crate) fn layer_slots(&mut self) -> LayerSlots {
        let c = &self.config;
        let (n_embd, n_ff, n_q, n_kv) = (c.n_embd, c.n_ff, c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        LayerSlots {
            attn_norm: self.slot("attn_norm", n_embd),
            q: self.slot("attn_q", n_q),
            k: self.slot("attn_k", n_kv),
            v: self.slot("attn_v", n_kv),
            attn: self.slot("attn", n_q),
            attn_output: self.slot("attn_output", n_embd),
            ffn_norm: self.slot("ffn_norm", n_embd),
            ffn_gate: self.slot("ffn_gate", n_ff),
            ffn_up: self.slot("ffn_up", n_ff),
            ffn_down: self.slot("ffn_down", n_embd),
        }
    }

    /// Adds a slot, for what only some architectures have.
    pub(crate) fn slot(&mut self, name: &'static str, width: usize) -> SlotId {
        self.plan.slot(name, width)
    }

    /// Adds a rotary table.
    pub(crate) fn rope_table(&mut self, rope: Rope) -> RopeId {
        self.plan.rope(rope)
    }

    /// The rotary table that the file describes: its base, its scaling and its divisors.
    pub(crate) fn rotary(&mut self, keys: Keys<'_>, pairs: RopePairs) -> Result<RopeId, ModelError> {
        let rope = rope::read_with_divisors(keys, self, pairs)?;
        Ok(self.rope_table(rope))
    }

    /// The steps that follow belong to this layer.
    pub(crate) fn enter_layer(&mut self, layer: u32) {
        self.layer = Some(layer);
    }

    fn tensor_name(&self, stem: &str, kind: &str) -> String {
        match self.layer {
            Some(layer) => format!("blk.{layer}.{stem}.{kind}"),
            None => format!("{stem}.{kind}"),
        }
    }

    fn push(&mut self, op: Op) {
        self.plan.push(self.layer, op);
    }

    /// Looks tokens up in `token_embd`, which also says how many there are. Gives the residual stream.
    pub(crate) fn embed(&mut self, scale: f32) -> Result<SlotId, ModelError> {
        let name = self.tensor_name("token_embd", "weight");
        let rows = self.tensors.need(&name)?.n_rows();
        let weight = self.tensors.matrix(&name, usize::try_from(rows).unwrap_or(0), self.config.n_embd)?;
        let shape = |expected| ModelError::Shape {
            name: name.clone(),
            found: vec![self.config.n_embd as u64, rows],
            expected: vec![self.config.n_embd as u64, expected],
        };
        let n_tokens = match self.gguf.metadata().array("tokenizer.ggml.tokens")? {
            Some(tokens) => tokens.len() as u64,
            None => 1,
        };
        // More rows than tokens are padding; fewer would leave a token without its row.
        if rows < n_tokens.max(1) || rows > MOST_VOCAB {
            return Err(shape(n_tokens.clamp(1, MOST_VOCAB)));
        }
        self.plan.n_vocab = weight.rows;
        let weight = self.plan.weight(weight);
        let out = self.plan.slot("residual", self.config.n_embd);
        self.push(Op::Embed { weight, index: Index::Token, out, scale });
        Ok(out)
    }

    /// Adds the learned embedding of each token's position, `position_embd`, to `x`.
    pub(crate) fn add_positions(&mut self, x: SlotId) -> Result<(), ModelError> {
        let name = self.tensor_name("position_embd", "weight");
        let rows = self.config.n_ctx_train as usize;
        let weight = self.tensors.matrix(&name, rows, self.config.n_embd)?;
        let weight = self.plan.weight(weight);
        let out = self.slot("position_embd", self.config.n_embd);
        self.push(Op::Embed { weight, index: Index::Position, out, scale: 1.0 });
        self.add(x, out);
        Ok(())
    }

    /// Whether the file has the tensor `{stem}.{kind}` of this layer.
    pub(crate) fn has(&self, stem: &str, kind: &str) -> bool {
        self.gguf.tensor(&self.tensor_name(stem, kind)).is_some()
    }

    /// Whether the file has any part of this layer's norm: with one part alone, the other is what is missing.
    pub(crate) fn has_norm(&self, stem: &str) -> bool {
        ["weight", "bias"].iter().any(|kind| self.has(stem, kind))
    }

    /// Whether the file has any part of this layer's norms of queries and keys.
    pub(crate) fn has_head_norms(&self) -> bool {
        ["attn_q_norm", "attn_k_norm"].iter().any(|stem| self.has_norm(stem))
    }

    /// Normalises a row by the vector `{stem}.weight` and, if there is one, `{stem}.bias`.
    pub(crate) fn norm(&mut self, stem: &str, x: SlotId, out: SlotId) -> Result<(), ModelError> {
        self.norm_of_parts(stem, x, 1, 1, out)
    }

    /// Normalises each head of the queries by the vector `attn_q_norm` and of the keys by `attn_k_norm`.
    pub(crate) fn head_norms(&mut self, s: LayerSlots) -> Result<(), ModelError> {
        let Config { n_head, n_head_kv, .. } = self.config;
        self.norm_of_parts("attn_q_norm", s.q, n_head, 1, s.q)?;
        self.norm_of_parts("attn_k_norm", s.k, n_head_kv, 1, s.k)
    }

    /// As [`Builder::head_norms`], with matrices that have a row for each head.
    pub(crate) fn norms_of_each_head(&mut self, s: LayerSlots) -> Result<(), ModelError> {
        let Config { n_head, n_head_kv, .. } = self.config;
        self.norm_of_parts("attn_q_norm", s.q, n_head, n_head, s.q)?;
        self.norm_of_parts("attn_k_norm", s.k, n_head_kv, n_head_kv, s.k)
    }

    /// Normalises a row in `parts` equal parts. The weight has one row, which the parts share, or one for each.
    fn norm_of_parts(
        &mut self,
        stem: &str,
        x: SlotId,
        parts: usize,
        rows: usize,
        out: SlotId,
    ) -> Result<(), ModelError> {
        let len = self.plan.slot_of(x).width / parts;
        let (weight, bias) = (self.tensor_name(stem, "weight"), self.tensor_name(stem, "bias"));
        let weight = self.tensors.matrix(&weight, rows, len)?;
        let weight = Some(self.plan.weight(weight));
        let bias = self.tensors.optional_vector(&bias, len)?.map(|b| self.plan.weight(b));
        let (kind, eps) = (self.config.norm, self.config.eps);
        self.push(Op::Norm { x, kind, weight, bias, eps, heads: parts, out });
        Ok(())
    }

    /// Normalises a row without any weights.
    pub(crate) fn plain_norm(&mut self, x: SlotId, out: SlotId) {
        let (kind, eps) = (self.config.norm, self.config.eps);
        self.push(Op::Norm { x, kind, weight: None, bias: None, eps, heads: 1, out });
    }

    /// Multiplies `x` by the matrices `{stem}.weight`, each with its `{stem}.bias` if there is one.
    pub(crate) fn linear(&mut self, x: SlotId, outputs: &[(&str, SlotId)]) -> Result<(), ModelError> {
        let mut projections = Vec::with_capacity(outputs.len());
        for &(stem, out) in outputs {
            projections.append(&mut self.projections(x, stem, &[out])?);
        }
        self.push(Op::Linear { x, projections });
        Ok(())
    }

    /// Multiplies `x` by the one matrix `{stem}.weight`, whose rows are shared out to the outputs in order.
    pub(crate) fn fused_linear(
        &mut self,
        x: SlotId,
        stem: &str,
        outputs: &[SlotId],
    ) -> Result<(), ModelError> {
        let projections = self.projections(x, stem, outputs)?;
        self.push(Op::Linear { x, projections });
        Ok(())
    }

    /// The projections to `outputs`, all of one matrix and one bias.
    fn projections(
        &mut self,
        x: SlotId,
        stem: &str,
        outputs: &[SlotId],
    ) -> Result<Vec<Projection>, ModelError> {
        let cols = self.plan.slot_of(x).width;
        let rows = outputs.iter().map(|out| self.plan.slot_of(*out).width).sum();
        let weight = self.tensors.matrix(&self.tensor_name(stem, "weight"), rows, cols)?;
        let bias = self.tensors.optional_vector(&self.tensor_name(stem, "bias"), rows)?;
        let weight = self.plan.weight(weight);
        let bias = bias.map(|b| self.plan.weight(b));
        let mut first_row = 0;
        let part = |out: &SlotId| {
            let from = |weight: WeightId| Rows { weight, first_row };
            let projection = Projection { weight: from(weight), bias: bias.map(from), out: *out };
            first_row += self.plan.slot_of(*out).width;
            projection
        };
        Ok(outputs.iter().map(part).collect())
    }

    /// Queries, keys and values of `x`, of three matrices or of the fused `attn_qkv`.
    pub(crate) fn qkv(&mut self, x: SlotId, s: LayerSlots) -> Result<(), ModelError> {
        // Without any of them, it is the fused one that is missing.
        if !["attn_q", "attn_k", "attn_v"].iter().any(|stem| self.has(stem, "weight")) {
            let mut projections = self.projections(x, "attn_qkv", &[s.q, s.k, s.v])?;
            // Some files fuse the matrices and not the biases.
            for (p, stem) in projections.iter_mut().zip(["attn_q", "attn_k", "attn_v"]) {
                let (name, len) = (self.tensor_name(stem, "bias"), self.plan.slot_of(p.out).width);
                if let (None, Some(bias)) = (p.bias, self.tensors.optional_vector(&name, len)?) {
                    p.bias = Some(Rows { weight: self.plan.weight(bias), first_row: 0 });
                }
            }
            self.push(Op::Linear { x, projections });
            return Ok(());
        }
        self.linear(x, &[("attn_q", s.q), ("attn_k", s.k), ("attn_v", s.v)])
    }

    /// Rotates the heads of `x`.
    pub(crate) fn rope(&mut self, x: SlotId, rope: RopeId) {
        let head_dim = self.config.head_dim;
        let heads = self.plan.slot_of(x).width / head_dim;
        self.push(Op::Rope { x, heads, head_dim, rope });
    }

    /// Normalises, where the model does, and rotates the heads of queries and keys, all with one table.
    pub(crate) fn rotate(&mut self, s: LayerSlots, rope: RopeId, norms: HeadNorms) -> Result<(), ModelError> {
        match norms {
            HeadNorms::None | HeadNorms::BehindRope => {}
            HeadNorms::BeforeRopeIfThere if !self.has_head_norms() => {}
            HeadNorms::BeforeRope | HeadNorms::BeforeRopeIfThere => self.head_norms(s)?,
            HeadNorms::OfRows => {
                self.norm("attn_q_norm", s.q, s.q)?;
                self.norm("attn_k_norm", s.k, s.k)?;
            }
        }
        self.rope(s.q, rope);
        self.rope(s.k, rope);
        if norms == HeadNorms::BehindRope {
            self.head_norms(s)?;
        }
        Ok(())
    }

    /// Attention over this layer's cache.
    pub(crate) fn attend(&mut self, s: LayerSlots, how: Attention) -> Result<(), ModelError> {
        let Config { n_head: heads, n_head_kv, head_dim, .. } = self.config;
        let sinks = match how.sinks {
            true => Some(self.tensors.vector(&self.tensor_name("attn_sinks", "weight"), heads)?),
            false => None,
        };
        let sinks = sinks.map(|w| self.plan.weight(w));
        let Attention { scale, window, softcap, sinks: _ } = how;
        let kv = self.plan.kv_layer(KvLayer { heads: n_head_kv, head_dim, window });
        self.push(Op::Attend {
            q: s.q,
            k: s.k,
            v: s.v,
            out: s.attn,
            kv,
            heads,
            scale,
            window,
            softcap,
            sinks,
        });
        Ok(())
    }

    /// The gated feed-forward part, from `ffn_norm` to `ffn_down`. A file without `ffn_gate` has it fused with `ffn_up`.
    pub(crate) fn gated_ffn(&mut self, s: LayerSlots, f: Gating) -> Result<(), ModelError> {
        let half = [s.ffn_norm, s.ffn_up].map(|slot| self.plan.slot_of(slot).width as u64);
        let up = self.tensors.find(&self.tensor_name("ffn_up", "weight"));
        // An `ffn_up` of one half's shape tells that it is the tensor of the other half that is missing.
        if self.has("ffn_gate", "weight") || up.is_some_and(|up| up.dims == half) {
            self.linear(s.ffn_norm, &[("ffn_gate", s.ffn_gate), ("ffn_up", s.ffn_up)])?;
        } else {
            self.fused_linear(s.ffn_norm, "ffn_up", &[s.ffn_gate, s.ffn_up])?;
        }
        self.gate(s.ffn_gate, s.ffn_up, f);
        self.linear(s.ffn_gate, &[("ffn_down", s.ffn_down)])
    }

    /// The feed-forward part of two matrices, from `x` to `ffn_down`.
    pub(crate) fn plain_ffn(&mut self, x: SlotId, s: LayerSlots, f: Nonlinearity) -> Result<(), ModelError> {
        self.linear(x, &[("ffn_up", s.ffn_up)])?;
        self.push(Op::Activate { x: s.ffn_up, f, out: s.ffn_up });
        self.linear(s.ffn_up, &[("ffn_down", s.ffn_down)])
    }

    /// Joins the halves of a gated part, in `gate`.
    pub(crate) fn gate(&mut self, gate: SlotId, up: SlotId, f: Gating) {
        self.push(Op::Gate { gate, up, out: gate, f });
    }

    /// Adds a branch to the residual stream.
    pub(crate) fn add(&mut self, residual: SlotId, branch: SlotId) {
        self.add_scaled(residual, branch, 1.0);
    }

    /// Adds a multiple of a branch to the residual stream.
    pub(crate) fn add_scaled(&mut self, residual: SlotId, branch: SlotId, scale: f32) {
        self.push(Op::Add { x: residual, y: branch, scale, out: residual });
    }

    /// Multiplies a slot.
    pub(crate) fn scale(&mut self, x: SlotId, scale: f32) {
        self.push(Op::Scale { x, scale, out: x });
    }

    /// The end: the wanted rows of the residual stream, the final norm, and the output matrix, which is the embedding's
    /// where the file has none.
    pub(crate) fn head(&mut self, residual: SlotId) -> Result<(), ModelError> {
        self.head_behind(residual, |b, x, out| b.norm("output_norm", x, out))
    }

    /// As [`Builder::head`], with a final norm that has no weights.
    pub(crate) fn plain_head(&mut self, residual: SlotId) -> Result<(), ModelError> {
        self.head_behind(residual, |b, x, out| {
            b.plain_norm(x, out);
            Ok(())
        })
    }

    fn head_behind(
        &mut self,
        residual: SlotId,
        norm: impl FnOnce(&mut Self, SlotId, SlotId) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        self.layer = None;
        let n_embd = self.config.n_embd;
        let normalised = self.plan.slot("output_norm", n_embd);
        let logits = self.plan.slot("logits", self.plan.n_vocab);
        self.push(Op::Select { slots: vec![residual] });
        norm(self, residual, normalised)?;
        let tied = self.gguf.tensor("output.weight").is_none();
        self.linear(normalised, &[(if tied { "token_embd" } else { "output" }, logits)])?;
        self.plan.logits = logits;
        Ok(())
    }

    /// Behind [`Builder::head`]: multiplies the logits.
    pub(crate) fn scale_logits(&mut self, scale: f32) {
        self.scale(self.plan.logits, scale);
    }

    /// Behind [`Builder::head`]: bounds the logits.
    pub(crate) fn softcap_logits(&mut self, cap: f32) {
        let x = self.plan.logits;
        self.push(Op::Softcap { x, cap, out: x });
    }

    /// The plan, once all steps are written.
    pub(crate) fn finish(mut self) -> Result<Loaded, ModelError> {
        self.plan.select_early();
        let unused = self.tensors.unused(&self.config)?;
        Ok(Loaded { plan: self.plan, unused })
    }
}
