//! Writing a plan step by step: each method finds and checks the tensors of its step.

use llamay_gguf::Gguf;
use llamay_plan::{KvLayer, Nonlinearity, Op, Plan, Projection, Rope, RopeId, SlotId};

use crate::config::Config;
use crate::tensors::Tensors;
use crate::{Loaded, ModelError};

/// Entries of a vocabulary; token ids are `u32`, and no model has a hundredth of this.
const MOST_VOCAB: u64 = 1 << 28;

/// A plan that is being written.
pub(crate) struct Builder<'a> {
    pub(crate) config: Config,
    pub(crate) tensors: Tensors<'a>,
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

impl<'a> Builder<'a> {
    pub(crate) fn new(gguf: &'a Gguf, config: Config) -> Builder<'a> {
        let plan = Plan {
            architecture: config.architecture.to_owned(),
            n_layer: config.n_layer,
            n_embd: config.n_embd,
            n_ctx_train: config.n_ctx_train,
            ..Plan::default()
        };
        Builder { config, tensors: Tensors::new(gguf), gguf, plan, layer: None }
    }

    /// The slots of a layer.
    pub(crate) fn layer_slots(&mut self) -> LayerSlots {
        let c = &self.config;
        let (n_embd, n_ff, n_q, n_kv) = (c.n_embd, c.n_ff, c.n_head * c.head_dim, c.n_head_kv * c.head_dim);
        let mut slot = |name, width| self.plan.slot(name, width);
        LayerSlots {
            attn_norm: slot("attn_norm", n_embd),
            q: slot("attn_q", n_q),
            k: slot("attn_k", n_kv),
            v: slot("attn_v", n_kv),
            attn: slot("attn", n_q),
            attn_output: slot("attn_output", n_embd),
            ffn_norm: slot("ffn_norm", n_embd),
            ffn_gate: slot("ffn_gate", n_ff),
            ffn_up: slot("ffn_up", n_ff),
            ffn_down: slot("ffn_down", n_embd),
        }
    }

    /// Adds a rotary table.
    pub(crate) fn rope_table(&mut self, rope: Rope) -> RopeId {
        self.plan.rope(rope)
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
        self.push(Op::Embed { weight, out, scale });
        Ok(out)
    }

    /// Normalises a row by the vector `{stem}.weight`, in `heads` equal parts.
    pub(crate) fn rms_norm(
        &mut self,
        stem: &str,
        x: SlotId,
        heads: usize,
        out: SlotId,
    ) -> Result<(), ModelError> {
        let len = self.plan.slot_of(x).width / heads;
        let weight = self.tensors.vector(&self.tensor_name(stem, "weight"), len)?;
        let weight = self.plan.weight(weight);
        self.push(Op::RmsNorm { x, weight, eps: self.config.eps, heads, out });
        Ok(())
    }

    /// Multiplies `x` by the matrices `{stem}.weight`, each with its `{stem}.bias` if there is one.
    pub(crate) fn linear(&mut self, x: SlotId, outputs: &[(&str, SlotId)]) -> Result<(), ModelError> {
        let cols = self.plan.slot_of(x).width;
        let mut projections = Vec::with_capacity(outputs.len());
        for &(stem, out) in outputs {
            let rows = self.plan.slot_of(out).width;
            let weight = self.tensors.matrix(&self.tensor_name(stem, "weight"), rows, cols)?;
            let bias = self.tensors.optional_vector(&self.tensor_name(stem, "bias"), rows)?;
            let weight = self.plan.weight(weight);
            let bias = bias.map(|b| self.plan.weight(b));
            projections.push(Projection { weight, bias, out });
        }
        self.push(Op::Linear { x, projections });
        Ok(())
    }

    /// Rotates the heads of `x`.
    pub(crate) fn rope(&mut self, x: SlotId, rope: RopeId) {
        let head_dim = self.config.head_dim;
        let heads = self.plan.slot_of(x).width / head_dim;
        self.push(Op::Rope { x, heads, head_dim, rope });
    }

    /// Attention over this layer's cache.
    pub(crate) fn attend(&mut self, s: LayerSlots, scale: f32, window: Option<u32>) {
        let Config { n_head, n_head_kv, head_dim, .. } = self.config;
        let kv = self.plan.kv_layer(KvLayer { heads: n_head_kv, head_dim });
        self.push(Op::Attend { q: s.q, k: s.k, v: s.v, out: s.attn, kv, heads: n_head, scale, window });
    }

    /// The gated feed-forward part, from `ffn_norm` to `ffn_down`.
    pub(crate) fn gated_ffn(&mut self, s: LayerSlots, f: Nonlinearity) -> Result<(), ModelError> {
        self.linear(s.ffn_norm, &[("ffn_gate", s.ffn_gate), ("ffn_up", s.ffn_up)])?;
        self.push(Op::Gate { gate: s.ffn_gate, up: s.ffn_up, out: s.ffn_gate, f });
        self.linear(s.ffn_gate, &[("ffn_down", s.ffn_down)])
    }

    /// Adds a branch to the residual stream.
    pub(crate) fn add(&mut self, residual: SlotId, branch: SlotId) {
        self.push(Op::Add { x: residual, y: branch, out: residual });
    }

    /// The end: the wanted rows of the residual stream, the final norm, and the output matrix, which is the embedding's
    /// where the file has none.
    pub(crate) fn head(&mut self, residual: SlotId) -> Result<(), ModelError> {
        self.layer = None;
        let n_embd = self.config.n_embd;
        let selected = self.plan.slot("selected", n_embd);
        let norm = self.plan.slot("output_norm", n_embd);
        let logits = self.plan.slot("logits", self.plan.n_vocab);
        self.push(Op::Select { x: residual, out: selected });
        self.rms_norm("output_norm", selected, 1, norm)?;
        let tied = self.gguf.tensor("output.weight").is_none();
        self.linear(norm, &[(if tied { "token_embd" } else { "output" }, logits)])?;
        self.plan.logits = logits;
        Ok(())
    }

    /// The plan, once all steps are written.
    pub(crate) fn finish(self) -> Result<Loaded, ModelError> {
        let unused = self.tensors.unused(self.config.architecture)?;
        Ok(Loaded { plan: self.plan, unused })
    }
}
