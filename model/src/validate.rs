//! Whether a plan can be executed at all: what every backend may take for granted.

use llamay_plan::{Gating, Index, KvId, Op, Plan, RopeId, Rows as WeightRows, SlotId, WeightId};

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {problem}")]
pub struct Invalid {
    /// Index of the step; the number of steps for what is wrong with the plan as a whole.
    pub step: usize,
    /// The fault, in words.
    pub problem: String,
}

/// Checks that
/// - every id is in range, and every width, head count and matrix fits its neighbours;
/// - every slot is written before it is read, and after the selection of rows only slots written since are read;
/// - outputs overlap inputs only where [`Op`] allows it;
/// - the cache layers are attended once each;
/// - constants are finite, and the logits come out selected and as wide as the vocabulary.
///
/// # Errors
/// The first fault.
pub fn validate(plan: &Plan) -> Result<(), Invalid> {
    let mut check =
        Check { plan, rows: vec![Rows::Unwritten; plan.slots.len()], selected: false, attended: vec![] };
    for (step, s) in plan.steps.iter().enumerate() {
        let layer_in_range = s.layer.is_none_or(|l| l < plan.n_layer);
        ensure(layer_in_range, || format!("layer {:?} of {}", s.layer, plan.n_layer))
            .and_then(|()| check.op(&s.op))
            .map_err(|problem| Invalid { step, problem })?;
    }
    check.end().map_err(|problem| Invalid { step: plan.steps.len(), problem })
}

type Checked = Result<(), String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn equal(what: &str, found: usize, needed: usize) -> Checked {
    ensure(found == needed, || format!("{what} is {found}, but {needed} is needed"))
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Unwritten,
    /// A row for each token.
    All,
    /// A row for each token that wants logits.
    Selected,
}

struct Check<'a> {
    plan: &'a Plan,
    rows: Vec<Rows>,
    selected: bool,
    attended: Vec<KvId>,
}

impl Check<'_> {
    fn op(&mut self, op: &Op) -> Checked {
        let needed = if self.selected { Rows::Selected } else { Rows::All };
        for x in op.inputs() {
            let (name, rows) = (self.name(x)?, self.rows[usize::from(x.0)]);
            ensure(rows == needed, || format!("{name} holds {rows:?} rows, but {needed:?} are needed"))?;
        }
        for w in op.weights() {
            ensure((w.0 as usize) < self.plan.weights.len(), || format!("no weight {w:?}"))?;
        }
        for out in op.outputs() {
            self.name(out)?;
        }
        self.shapes(op)?;
        self.selected |= matches!(op, Op::Select { .. });
        for out in op.outputs() {
            self.rows[usize::from(out.0)] = if self.selected { Rows::Selected } else { Rows::All };
        }
        Ok(())
    }

    fn shapes(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Embed { weight, index, out, scale } => {
                finite("scale", scale)?;
                ensure(!self.selected, || "an embedding behind the selection".into())?;
                let rows = match index {
                    Index::Token => self.plan.n_vocab,
                    Index::Position => self.plan.weight_of(weight).rows.max(1),
                };
                self.matrix(weight, rows, self.width(out))
            }
            Op::Norm { x, kind: _, weight, bias, eps, heads, out } => {
                ensure(eps >= 0.0 && eps.is_finite(), || format!("eps is {eps}"))?;
                equal("the width of the output", self.width(out), self.width(x))?;
                ensure(heads > 0 && self.width(x).is_multiple_of(heads), || format!("{heads} heads"))?;
                let len = self.width(x) / heads;
                weight.into_iter().chain(bias).try_for_each(|w| match self.plan.weight_of(w).rows {
                    1 => self.matrix(w, 1, len),
                    _ => self.matrix(w, heads, len),
                })
            }
            Op::Linear { x, ref projections } => {
                ensure(!projections.is_empty(), || "no projections".into())?;
                for (i, p) in projections.iter().enumerate() {
                    self.rows(p.weight, self.width(p.out), self.width(x))?;
                    p.bias.map_or(Ok(()), |bias| self.elements(bias, self.width(p.out)))?;
                    let earlier = projections[..i].iter().map(|p| p.out);
                    self.apart(p.out, earlier.chain([x]))?;
                }
                Ok(())
            }
            Op::ExpertLinear { x, cols, chosen, ref projections } => {
                ensure(!projections.is_empty(), || "no projections".into())?;
                let (width, n_used) = (self.width(x), self.width(chosen));
                ensure(n_used > 0 && (width == cols || width == n_used * cols), || {
                    format!("rows of {cols} for {n_used} experts in an input of {width}")
                })?;
                for (i, p) in projections.iter().enumerate() {
                    let out = self.width(p.out);
                    ensure(out.is_multiple_of(n_used), || {
                        format!("an output of {out} for {n_used} experts")
                    })?;
                    let (n_expert, rows) = (p.experts.len(), out / n_used);
                    ensure(n_expert >= n_used, || format!("{n_used} of {n_expert} experts"))?;
                    p.experts.iter().try_for_each(|e| self.rows(*e, rows, cols))?;
                    p.bias.map_or(Ok(()), |bias| self.matrix(bias, n_expert, rows))?;
                    let earlier = projections[..i].iter().map(|p| p.out);
                    self.apart(p.out, earlier.chain([x, chosen]))?;
                }
                Ok(())
            }
            Op::Route { x, bias, scoring: _, normalize: _, scale, chosen, weights } => {
                finite("scale", scale)?;
                let (n_expert, n_used) = (self.width(x), self.width(chosen));
                ensure(n_used > 0 && n_used <= n_expert, || format!("{n_used} of {n_expert} experts"))?;
                equal("the width of the weights", self.width(weights), n_used)?;
                bias.map_or(Ok(()), |bias| self.matrix(bias, 1, n_expert))?;
                self.apart(chosen, [x, weights])?;
                self.apart(weights, [x])
            }
            Op::Combine { x, weights, out } => {
                equal("the width of x", self.width(x), self.width(weights) * self.width(out))?;
                self.apart(out, [x, weights])
            }
            Op::Rope { x, heads, head_dim, rope: RopeId(rope) } => {
                equal("the width", self.width(x), heads * head_dim)?;
                let rope = self.plan.ropes.get(usize::from(rope)).ok_or("no such rotary table")?;
                ensure(rope.magnitude_span > 0, || "a magnitude for no positions".into())?;
                ensure(!rope.magnitudes.is_empty(), || "no magnitude".into())?;
                rope.magnitudes.iter().try_for_each(|m| finite("a magnitude", *m))?;
                rope.frequencies.iter().try_for_each(|f| finite("a frequency", *f))?;
                ensure(2 * rope.frequencies.len() <= head_dim, || {
                    format!("{} pairs in a head of {head_dim}", rope.frequencies.len())
                })
            }
            Op::Attend { q, k, v, out, kv, heads, scale, window, softcap, sinks } => {
                finite("scale", scale)?;
                ensure(window != Some(0), || "a window of 0".into())?;
                softcap.map_or(Ok(()), positive_cap)?;
                sinks.map_or(Ok(()), |sinks| self.matrix(sinks, 1, heads))?;
                let layer = self.plan.kv.get(usize::from(kv.0)).ok_or("no such cache layer")?;
                ensure(window == layer.window, || {
                    format!("a window of {window:?} over a cache layer of {:?}", layer.window)
                })?;
                ensure(layer.heads > 0 && heads.is_multiple_of(layer.heads), || {
                    format!("{heads} query heads over {}", layer.heads)
                })?;
                for (what, slot, heads) in [
                    ("q", q, heads),
                    ("k", k, layer.heads),
                    ("v", v, layer.heads),
                    ("the output", out, heads),
                ] {
                    equal(&format!("the width of {what}"), self.width(slot), heads * layer.head_dim)?;
                }
                ensure(!self.attended.contains(&kv), || format!("cache layer {kv:?} is written twice"))?;
                ensure(!self.selected, || "attention behind the selection".into())?;
                self.attended.push(kv);
                self.apart(out, [q, k, v])
            }
            Op::Gate { gate, up, out, f: Gating::Product(_) | Gating::ClippedSwiglu } => {
                equal("the width of up", self.width(up), self.width(gate))?;
                equal("the width of the output", self.width(out), self.width(gate))
            }
            Op::Activate { x, f: _, out } => equal("the width of the output", self.width(out), self.width(x)),
            Op::Add { x, y, scale, out } => {
                finite("scale", scale)?;
                equal("the width of y", self.width(y), self.width(x))?;
                equal("the width of the output", self.width(out), self.width(x))
            }
            Op::Scale { x, scale, out } => {
                finite("scale", scale)?;
                equal("the width of the output", self.width(out), self.width(x))
            }
            Op::Softcap { x, cap, out } => {
                positive_cap(cap)?;
                equal("the width of the output", self.width(out), self.width(x))
            }
            Op::Select { ref slots } => {
                ensure(!self.selected, || "a second selection".into())?;
                let twice = slots.iter().enumerate().any(|(i, slot)| slots[..i].contains(slot));
                ensure(!twice, || "a slot is selected twice".into())
            }
        }
    }

    fn end(&self) -> Checked {
        let name = self.name(self.plan.logits)?;
        let rows = self.rows[usize::from(self.plan.logits.0)];
        ensure(rows == Rows::Selected, || format!("the logits, {name}, hold {rows:?} rows"))?;
        equal("the width of the logits", self.width(self.plan.logits), self.plan.n_vocab)?;
        equal("the number of attended cache layers", self.attended.len(), self.plan.kv.len())
    }

    fn name(&self, slot: SlotId) -> Result<&'static str, String> {
        self.plan.slots.get(usize::from(slot.0)).map(|s| s.name).ok_or_else(|| format!("no slot {slot:?}"))
    }

    /// Of a slot that is known to exist.
    fn width(&self, slot: SlotId) -> usize {
        self.plan.slot_of(slot).width
    }

    fn matrix(&self, weight: WeightId, rows: usize, cols: usize) -> Checked {
        let w = self.plan.weight_of(weight);
        ensure((w.rows, w.cols) == (rows, cols), || {
            format!("{} is {} × {}, but {rows} × {cols} is needed", w.name, w.rows, w.cols)
        })?;
        ensure(w.format.row_bytes(cols).is_some(), || format!("{} has no whole {} blocks", w.name, w.format))
    }

    /// Some rows of a matrix.
    fn rows(&self, part: WeightRows, rows: usize, cols: usize) -> Checked {
        let w = self.plan.weight_of(part.weight);
        let enough = part.first_row.checked_add(rows).is_some_and(|end| end <= w.rows);
        ensure(enough, || {
            format!("{} has {} rows, but {rows} from {} on are needed", w.name, w.rows, part.first_row)
        })?;
        self.matrix(part.weight, w.rows, cols)
    }

    /// Some elements of a vector.
    fn elements(&self, part: WeightRows, len: usize) -> Checked {
        let w = self.plan.weight_of(part.weight);
        let enough = part.first_row.checked_add(len).is_some_and(|end| end <= w.cols);
        ensure(enough, || {
            format!("{} has {} elements, but {len} from {} on are needed", w.name, w.cols, part.first_row)
        })?;
        self.matrix(part.weight, 1, w.cols)
    }

    fn apart(&self, out: SlotId, others: impl IntoIterator<Item = SlotId>) -> Checked {
        ensure(others.into_iter().all(|x| x != out), || {
            format!("{} is written while it is read or written", self.plan.slot_of(out).name)
        })
    }
}

fn positive_cap(cap: f32) -> Checked {
    ensure(cap > 0.0 && cap.is_finite(), || format!("a soft cap of {cap}"))
}

fn finite(what: &str, value: f32) -> Checked {
    ensure(value.is_finite(), || format!("{what} is {value}"))
}
