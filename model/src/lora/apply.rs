//! Adapters as steps of a plan.

use std::collections::HashMap;

use llamay_plan::{Index, Op, Plan, Projection, Rows, SlotId, Step, Weight, WeightId};

use super::{Adapter, Half, LoraError, Pair};

/// What one adapter added to a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// All of its steps. Without them the plan computes what it did without the adapter, to the bit.
    pub steps: Vec<usize>,
    /// Those of its steps that add a product to what it changes.
    pub sums: Vec<Sum>,
}

/// A step that adds `scale B (A x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// Index of the step, an [`Op::Add`].
    pub step: usize,
    /// `alpha / rank`.
    pub factor: f64,
}

impl Sum {
    /// The factor of the step's second summand at a scale of the user's.
    pub fn scale(&self, scale: f32) -> f32 {
        (self.factor * f64::from(scale)) as f32
    }
}

/// The name in the plan of an adapter's tensor.
fn weight_name(adapter: usize, tensor: &str) -> String {
    format!("lora.{adapter}/{tensor}")
}

/// Of a weight that [`apply`] put into a plan, which adapter has it, and by which name.
pub fn tensor_of(weight: &str) -> Option<(usize, &str)> {
    let (adapter, tensor) = weight.strip_prefix("lora.")?.split_once('/')?;
    Some((adapter.parse().ok()?, tensor))
}

/// Puts adapters into a plan, each with its scale; the products are added in the order of the adapters.
///
/// Steps are written for a scale of 0 as well, so that it can be changed later. The tensors become weights of names that
/// [`tensor_of`] takes apart.
///
/// # Errors
/// The first adapter that does not fit the model, by its index, and why. The plan is then unusable.
pub fn apply(plan: &mut Plan, adapters: &[(&Adapter, f32)]) -> Result<Vec<Applied>, (usize, LoraError)> {
    let mut writer = Writer { scratch: HashMap::new(), applied: vec![Applied::default(); adapters.len()] };
    let mut changes = Vec::with_capacity(adapters.len());
    for (i, (adapter, scale)) in adapters.iter().enumerate() {
        changes.push(changes_of(plan, i, adapter, *scale).map_err(|e| (i, e))?);
    }
    for step in std::mem::take(&mut plan.steps) {
        let op = step.op.clone();
        plan.steps.push(step);
        for (adapter, changes) in changes.iter().enumerate() {
            writer.behind(plan, &op, adapter, changes).map_err(|e| (adapter, e))?;
        }
    }
    debug_assert_eq!(crate::validate(plan), Ok(()), "adapters made a plan that cannot run");
    Ok(writer.applied)
}

/// A pair, as the plan knows it.
#[derive(Clone, Copy)]
struct Change {
    rank: usize,
    a: WeightId,
    b: WeightId,
    factor: f64,
    scale: f32,
}

/// What an adapter does to which weight, after every check.
fn changes_of(
    plan: &mut Plan,
    index: usize,
    adapter: &Adapter,
    scale: f32,
) -> Result<HashMap<WeightId, Change>, LoraError> {
    adapter.check_architecture(&plan.architecture)?;
    let ids: HashMap<String, WeightId> =
        plan.weights.iter().zip(0..).map(|(w, i)| (w.name.clone(), WeightId(i))).collect();
    let uses = uses(plan);
    let mut changes = HashMap::with_capacity(adapter.pairs().len());
    for pair in adapter.pairs() {
        let unknown = || LoraError::Unknown { tensor: pair.tensor.clone() };
        let id = *ids.get(&pair.tensor).ok_or_else(unknown)?;
        uses.get(&id).copied().unwrap_or_default().check(pair)?;
        let weight = plan.weight_of(id);
        pair.check_shape(weight.rows, weight.cols)?;
        let sum = Sum { step: 0, factor: adapter.factor(pair) };
        if !sum.scale(scale).is_finite() {
            return Err(LoraError::Scale { scale, alpha: adapter.alpha(), rank: pair.rank });
        }
        let mut weight = |half: &Half| {
            let Half { name, format, rows, cols } = half;
            plan.weight(Weight { name: weight_name(index, name), format: *format, rows: *rows, cols: *cols })
        };
        let (a, b) = (weight(&pair.a), weight(&pair.b));
        changes.insert(id, Change { rank: pair.rank, a, b, factor: sum.factor, scale });
    }
    Ok(changes)
}

/// What the steps of a plan do with a weight.
#[derive(Clone, Copy, Default)]
struct Uses {
    product: bool,
    lookup: bool,
    experts: bool,
    other: bool,
}

impl Uses {
    /// An error if the steps do something that the pair cannot change.
    fn check(self, pair: &Pair) -> Result<(), LoraError> {
        let tensor = pair.tensor.clone();
        match self {
            Uses { experts: true, .. } => Err(LoraError::Experts { tensor }),
            Uses { product: true, lookup: true, .. } => Err(LoraError::Tied { tensor }),
            Uses { product, lookup, experts: false, other: false }
                if product != lookup && lookup == pair.is_lookup() =>
            {
                Ok(())
            }
            _ => Err(LoraError::NoMatrix { tensor }),
        }
    }
}

fn uses(plan: &Plan) -> HashMap<WeightId, Uses> {
    let mut uses: HashMap<WeightId, Uses> = HashMap::with_capacity(plan.weights.len());
    for step in &plan.steps {
        for weight in step.op.weights() {
            let uses = uses.entry(weight).or_default();
            match &step.op {
                Op::Linear { projections, .. } if projections.iter().any(|p| p.weight.weight == weight) => {
                    uses.product = true;
                }
                Op::Embed { index: Index::Token, .. } => uses.lookup = true,
                Op::ExpertLinear { .. } => uses.experts = true,
                _ => uses.other = true,
            }
        }
    }
    uses
}

/// Writes the steps of adapters.
struct Writer {
    /// Slots of intermediate results, by name, width, and number among those that a step needs at once.
    scratch: HashMap<(&'static str, usize, usize), SlotId>,
    applied: Vec<Applied>,
}

impl Writer {
    /// Writes what an adapter adds behind a step.
    fn behind(
        &mut self,
        plan: &mut Plan,
        op: &Op,
        adapter: usize,
        changes: &HashMap<WeightId, Change>,
    ) -> Result<(), LoraError> {
        match op {
            Op::Linear { x, projections } => self.behind_linear(plan, *x, projections, adapter, changes),
            Op::Embed { weight, index: Index::Token, out, scale } => {
                let Some(change) = changes.get(weight) else { return Ok(()) };
                let low = self.slot(plan, "lora_a", change.rank, 0)?;
                let (weight, index) = (change.a, Index::Token);
                self.push(plan, adapter, Op::Embed { weight, index, out: low, scale: *scale });
                self.expand(plan, adapter, *change, low, &[(*out, 0)])
            }
            _ => Ok(()),
        }
    }

    /// `A x` of all matrices of a step in one step, so that `x` is turned into bytes once, then for each its `B` and the
    /// sum.
    fn behind_linear(
        &mut self,
        plan: &mut Plan,
        x: SlotId,
        projections: &[Projection],
        adapter: usize,
        changes: &HashMap<WeightId, Change>,
    ) -> Result<(), LoraError> {
        // Of each changed matrix, the parts that the step reads: a fused one has several.
        let mut changed: Vec<(WeightId, Vec<(SlotId, usize)>)> = Vec::new();
        for p in projections.iter().filter(|p| changes.contains_key(&p.weight.weight)) {
            let part = (p.out, p.weight.first_row);
            match changed.iter_mut().find(|(weight, _)| *weight == p.weight.weight) {
                Some((_, parts)) => parts.push(part),
                None => changed.push((p.weight.weight, vec![part])),
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let mut lows = Vec::with_capacity(changed.len());
        let mut first = Vec::with_capacity(changed.len());
        for (nth, (weight, _)) in changed.iter().enumerate() {
            let Change { rank, a, .. } = changes[weight];
            let low = self.slot(plan, "lora_a", rank, nth)?;
            first.push(Projection { weight: Rows { weight: a, first_row: 0 }, bias: None, out: low });
            lows.push(low);
        }
        self.push(plan, adapter, Op::Linear { x, projections: first });
        for ((weight, parts), low) in changed.iter().zip(lows) {
            self.expand(plan, adapter, changes[weight], low, parts)?;
        }
        Ok(())
    }

    /// Adds `B low` to the slots, each of which takes the rows of `B` from a certain one on.
    fn expand(
        &mut self,
        plan: &mut Plan,
        adapter: usize,
        change: Change,
        low: SlotId,
        parts: &[(SlotId, usize)],
    ) -> Result<(), LoraError> {
        let mut projections = Vec::with_capacity(parts.len());
        for (nth, (out, first_row)) in parts.iter().enumerate() {
            let product = self.slot(plan, "lora_b", plan.slot_of(*out).width, nth)?;
            let weight = Rows { weight: change.b, first_row: *first_row };
            projections.push(Projection { weight, bias: None, out: product });
        }
        let products: Vec<SlotId> = projections.iter().map(|p| p.out).collect();
        self.push(plan, adapter, Op::Linear { x: low, projections });
        for ((out, _), product) in parts.iter().zip(products) {
            let sum = Sum { step: plan.steps.len(), factor: change.factor };
            let scale = sum.scale(change.scale);
            self.applied[adapter].sums.push(sum);
            self.push(plan, adapter, Op::Add { x: *out, y: product, scale, out: *out });
        }
        Ok(())
    }

    /// A step of the layer of the step before.
    fn push(&mut self, plan: &mut Plan, adapter: usize, op: Op) {
        self.applied[adapter].steps.push(plan.steps.len());
        let layer = plan.steps.last().and_then(|step| step.layer);
        plan.steps.push(Step { layer, op });
    }

    fn slot(
        &mut self,
        plan: &mut Plan,
        name: &'static str,
        width: usize,
        nth: usize,
    ) -> Result<SlotId, LoraError> {
        if let Some(slot) = self.scratch.get(&(name, width, nth)) {
            return Ok(*slot);
        }
        if plan.slots.len() >= usize::from(u16::MAX) {
            return Err(LoraError::TooMany);
        }
        let slot = plan.slot(name, width);
        self.scratch.insert((name, width, nth), slot);
        Ok(slot)
    }
}
