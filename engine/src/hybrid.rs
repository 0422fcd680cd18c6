//! A plan that a device and the CPU share: runs of steps on either, and what crosses the borders between them.

use std::ops::Range;
use std::sync::Arc;

use llamay_plan::{Batch, ExecError, Executor, PageId, Placement, Plan, Profile, SlotId, StepChange, Tier};

/// Where a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Device,
    Cpu,
}

impl Side {
    fn of(tier: Tier) -> Side {
        match tier {
            Tier::Graph | Tier::Matmul => Side::Device,
            Tier::Cpu => Side::Cpu,
        }
    }
}

/// Steps that run on one side, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    side: Side,
    steps: Range<usize>,
    /// Slots that these steps read and that only the other side has.
    brought: Vec<SlotId>,
}

/// Cuts a plan where the side changes, and finds out what crosses each border.
fn segments(plan: &Plan, tiers: &[Tier]) -> Vec<Segment> {
    // The sides that have a slot's newest rows: the device, the CPU.
    let mut has = vec![[false; 2]; plan.slots.len()];
    let mut segments: Vec<Segment> = Vec::new();
    for (i, (step, tier)) in plan.steps.iter().zip(tiers).enumerate() {
        let side = Side::of(*tier);
        match segments.last_mut() {
            Some(last) if last.side == side => last.steps.end = i + 1,
            _ => segments.push(Segment { side, steps: i..i + 1, brought: Vec::new() }),
        }
        let (mine, other) = if side == Side::Device { (0, 1) } else { (1, 0) };
        for slot in step.op.inputs() {
            let has = &mut has[usize::from(slot.0)];
            if !has[mine] && has[other] {
                has[mine] = true;
                segments.iter_mut().next_back().into_iter().for_each(|s| s.brought.push(slot));
            }
        }
        for slot in step.op.outputs() {
            has[usize::from(slot.0)] = [mine == 0, mine == 1];
        }
    }
    segments
}

/// An executor of each side.
pub(crate) struct Hybrid {
    plan: Arc<Plan>,
    segments: Vec<Segment>,
    owners: Vec<Side>,
    device: Box<dyn Executor>,
    cpu: Box<dyn Executor>,
    /// Rows under way.
    rows: Vec<f32>,
}

impl Hybrid {
    /// Both executors have loaded the plan with their own steps.
    pub(crate) fn new(
        plan: Arc<Plan>,
        placement: &Placement,
        device: Box<dyn Executor>,
        cpu: Box<dyn Executor>,
    ) -> Hybrid {
        Hybrid {
            segments: segments(&plan, &placement.tiers),
            owners: placement.tiers.iter().map(|t| Side::of(*t)).collect(),
            plan,
            device,
            cpu,
            rows: Vec::new(),
        }
    }

    /// The executor of a side, and the other.
    fn sides(&mut self, side: Side) -> (&mut dyn Executor, &mut dyn Executor) {
        match side {
            Side::Device => (&mut *self.device, &mut *self.cpu),
            Side::Cpu => (&mut *self.cpu, &mut *self.device),
        }
    }

    /// Runs all steps, one segment after the other; with `check`, step by step, to find a value that is not finite.
    fn run_all(&mut self, batch: &Batch<'_>, check: bool) -> Result<(), ExecError> {
        let plan = Arc::clone(&self.plan);
        let (n_tokens, n_logits) = (batch.tokens.len(), batch.n_logits());
        for i in 0..self.segments.len() {
            let Segment { side, steps, brought } = self.segments[i].clone();
            let rows = plan.rows_before(steps.start, n_tokens, n_logits);
            if rows == 0 {
                break;
            }
            let mut values = std::mem::take(&mut self.rows);
            let (mine, other) = self.sides(side);
            for slot in brought {
                other.read_slot(slot, rows, &mut values)?;
                mine.write_slot(slot, &values)?;
            }
            if !check {
                mine.run(*batch, steps)?;
            } else {
                for step in steps {
                    mine.run(*batch, step..step + 1)?;
                    let rows = plan.rows_before(step + 1, n_tokens, n_logits);
                    for out in plan.steps[step].op.outputs() {
                        mine.read_slot(out, rows, &mut values)?;
                        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
                            let token = at / plan.slot_of(out).width;
                            return Err(ExecError::NotFinite { step: plan.describe_step(step), token });
                        }
                    }
                }
            }
            self.rows = values;
        }
        Ok(())
    }
}

impl Executor for Hybrid {
    fn forward(&mut self, batch: Batch<'_>, logits: &mut Vec<f32>) -> Result<(), ExecError> {
        self.run_all(&batch, false)?;
        let last = self.segments.last().map_or(Side::Cpu, |s| s.side);
        let (slot, rows) = (self.plan.logits, batch.n_logits());
        self.sides(last).0.read_slot(slot, rows, logits)?;
        if logits.iter().any(|v| !v.is_finite()) {
            self.run_all(&batch, true)?;
        }
        Ok(())
    }

    fn run(&mut self, _: Batch<'_>, _: Range<usize>) -> Result<(), ExecError> {
        unreachable!("a mixture is no part of another")
    }

    fn read_slot(&mut self, _: SlotId, _: usize, _: &mut Vec<f32>) -> Result<(), ExecError> {
        unreachable!("a mixture is no part of another")
    }

    fn write_slot(&mut self, _: SlotId, _: &[f32]) -> Result<(), ExecError> {
        unreachable!("a mixture is no part of another")
    }

    fn reserve_pages(&mut self, group: usize, n: usize) -> Result<(), ExecError> {
        // Each side keeps the layers that it attends to.
        self.device.reserve_pages(group, n)?;
        self.cpu.reserve_pages(group, n)
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.device.copy_page(group, from, to);
        self.cpu.copy_page(group, from, to);
    }

    fn change_steps(&mut self, changes: &[(usize, StepChange)]) -> Result<(), ExecError> {
        let of = |side| -> Vec<_> {
            changes.iter().filter(|(step, _)| self.owners[*step] == side).copied().collect()
        };
        let (device, cpu) = (of(Side::Device), of(Side::Cpu));
        self.device.change_steps(&device)?;
        self.cpu.change_steps(&cpu)
    }

    fn profile(&mut self, on: bool) {
        self.device.profile(on);
        self.cpu.profile(on);
    }

    fn take_profile(&mut self) -> Profile {
        // A device that times its steps is not there yet; what it ran is missing from the table.
        self.cpu.take_profile()
    }
}

#[cfg(test)]
mod tests {
    use llamay_plan::{Nonlinearity, Op};

    use super::*;

    /// `a` from nowhere, then each slot from the one before it.
    fn chain(n: usize) -> Plan {
        let mut plan = Plan::default();
        let slots: Vec<SlotId> = (0..=n).map(|_| plan.slot("x", 1)).collect();
        for pair in slots.windows(2) {
            plan.push(Some(0), Op::Activate { x: pair[0], f: Nonlinearity::Relu, out: pair[1] });
        }
        plan
    }

    #[test]
    fn a_slot_crosses_where_its_reader_is_on_the_other_side_and_only_once() {
        let mut plan = chain(4);
        let (device, cpu) = (Tier::Graph, Tier::Cpu);
        // The last step reads what the first one wrote, too.
        plan.push(Some(0), Op::Add { x: SlotId(4), y: SlotId(1), scale: 1.0, out: SlotId(0) });
        plan.push(Some(0), Op::Add { x: SlotId(1), y: SlotId(1), scale: 1.0, out: SlotId(2) });
        let found = segments(&plan, &[cpu, device, device, cpu, cpu, device]);
        let brought: Vec<_> = found.iter().map(|s| (s.side, s.steps.clone(), s.brought.clone())).collect();
        assert_eq!(
            brought,
            [
                (Side::Cpu, 0..1, vec![]),
                (Side::Device, 1..3, vec![SlotId(1)]),
                (Side::Cpu, 3..5, vec![SlotId(3)]),
                (Side::Device, 5..6, vec![]),
            ]
        );
    }

    #[test]
    fn what_is_written_anew_crosses_anew() {
        let mut plan = chain(1);
        plan.push(Some(0), Op::Scale { x: SlotId(1), scale: 2.0, out: SlotId(1) });
        plan.push(Some(0), Op::Scale { x: SlotId(1), scale: 2.0, out: SlotId(1) });
        let found = segments(&plan, &[Tier::Cpu, Tier::Matmul, Tier::Cpu]);
        assert!(found[1..].iter().all(|s| s.brought == [SlotId(1)]) && found.len() == 3);
    }
}
