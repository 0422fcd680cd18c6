//! Placement, decided over devices that refuse what the test wants them to refuse.

use std::sync::Arc;

use llamay_plan::{
    Backend, ExecError, Executor, Format, Gating, Index, KvLayer, LoadOptions, Nonlinearity, NormKind, Op,
    Placement, Plan, Progress, Projection, Refusal, Rope, RopePairs, Rows, SlotId, Tier, Unplaced, Weight,
    WeightId, WeightSource,
};

type Supports = dyn Fn(&Op, &[Format]) -> Result<(), Refusal> + Send + Sync;

/// A device that says what it is told to say, and loads nothing.
struct Fake {
    name: &'static str,
    supports: Box<Supports>,
}

impl Fake {
    fn new(
        name: &'static str,
        supports: impl Fn(&Op, &[Format]) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Fake {
        Fake { name, supports: Box::new(supports) }
    }

    fn able(name: &'static str) -> Fake {
        Fake::new(name, |_, _| Ok(()))
    }

    fn without_op(name: &'static str, refused: &'static str) -> Fake {
        Fake::new(name, move |op, _| if op.name() == refused { Err(Refusal::Op(refused)) } else { Ok(()) })
    }

    fn without_format(name: &'static str, refused: Format) -> Fake {
        Fake::new(name, move |op, formats| {
            if formats.contains(&refused) { Err(Refusal::Format(op.name(), refused)) } else { Ok(()) }
        })
    }
}

impl Backend for Fake {
    fn name(&self) -> String {
        self.name.into()
    }

    fn describe(&self) -> String {
        format!("{} (a fake)", self.name)
    }

    fn supports(&self, op: &Op, formats: &[Format]) -> Result<(), Refusal> {
        (self.supports)(op, formats)
    }

    fn free_memory(&self) -> Option<u64> {
        None
    }

    fn load(
        &self,
        _: Arc<Plan>,
        _: Arc<dyn WeightSource>,
        _: LoadOptions,
        _: Progress<'_>,
    ) -> Result<Box<dyn Executor>, ExecError> {
        Err(ExecError::OutOfMemory { what: "a fake device", bytes: 0 })
    }
}

const N_LAYER: u32 = 3;

fn norm_step(x: SlotId, weight: WeightId, out: SlotId) -> Op {
    Op::Norm { x, kind: NormKind::Rms, weight: Some(weight), bias: None, eps: 1e-5, heads: 1, out }
}

fn linear(x: SlotId, weight: WeightId, out: SlotId) -> Op {
    let weight = Rows { weight, first_row: 0 };
    Op::Linear { x, projections: vec![Projection { weight, bias: None, out }] }
}

/// A model of three small layers, every matrix in the format that `format` gives for its name.
fn plan(format: impl Fn(&str) -> Format) -> Plan {
    let mut p = Plan { n_layer: N_LAYER, n_embd: 256, n_vocab: 64, ..Plan::default() };
    let matrix = |p: &mut Plan, name: String, rows| {
        let format = format(&name);
        p.weight(Weight { name, format, rows, cols: 256 })
    };
    let vector =
        |p: &mut Plan, name: String| p.weight(Weight { name, format: Format::F32, rows: 1, cols: 256 });
    let [x, norm, q, k, v, attn, out, gate, up] =
        ["residual", "norm", "attn_q", "attn_k", "attn_v", "attn", "attn_output", "ffn_gate", "ffn_up"]
            .map(|name| p.slot(name, 256));
    let rope = p.rope(Rope {
        frequencies: vec![1.0; 32],
        pairs: RopePairs::Halves,
        magnitudes: vec![1.0],
        magnitude_span: 1,
    });

    let table = matrix(&mut p, "token_embd.weight".into(), 64);
    p.push(None, Op::Embed { weight: table, index: Index::Token, out: x, scale: 1.0 });
    for layer in 0..N_LAYER {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        let at = Some(layer);
        let attn_norm = vector(&mut p, name("attn_norm"));
        p.push(at, norm_step(x, attn_norm, norm));
        let qkv = [("attn_q", q), ("attn_k", k), ("attn_v", v)].map(|(stem, out)| Projection {
            weight: Rows { weight: matrix(&mut p, name(stem), 256), first_row: 0 },
            bias: None,
            out,
        });
        p.push(at, Op::Linear { x: norm, projections: qkv.into() });
        p.push(at, Op::Rope { x: q, heads: 4, head_dim: 64, rope });
        p.push(at, Op::Rope { x: k, heads: 4, head_dim: 64, rope });
        let kv = p.kv_layer(KvLayer { heads: 4, head_dim: 64, window: None });
        p.push(
            at,
            Op::Attend {
                q,
                k,
                v,
                out: attn,
                kv,
                heads: 4,
                scale: 0.125,
                window: None,
                softcap: None,
                sinks: None,
            },
        );
        for (stem, input, output) in [("attn_output", attn, out), ("ffn_gate", x, gate), ("ffn_up", x, up)] {
            let weight = matrix(&mut p, name(stem), 256);
            p.push(at, linear(input, weight, output));
        }
        p.push(at, Op::Gate { gate, up, out: gate, f: Gating::Product(Nonlinearity::Silu) });
        p.push(at, Op::Add { x, y: gate, scale: 1.0, out: x });
    }
    let logits = p.slot("logits", 64);
    p.push(None, Op::Select { slots: vec![x] });
    p.push(None, linear(x, table, logits));
    p.logits = logits;
    p
}

/// All matrices Q8_0, but for those whose name ends in one of `ends`: Q2_K.
fn plan_with_q2_k(ends: &'static [&'static str]) -> Plan {
    plan(move |name| if ends.iter().any(|end| name.ends_with(end)) { Format::Q2_K } else { Format::Q8_0 })
}

fn place(plan: &Plan, device: &Fake) -> Placement {
    Placement::compute(plan, Some(device), &Fake::able("cpu"), None).unwrap()
}

fn line(plan: &Plan, device: &Fake) -> String {
    place(plan, device).line(plan, Some(device), &Fake::able("cpu"))
}

/// Tiers of a layer's steps.
fn tiers<'a>(plan: &'a Plan, placement: &'a Placement, layer: u32) -> impl Iterator<Item = (&'a Op, Tier)> {
    let steps = plan.steps.iter().zip(&placement.tiers);
    steps.filter(move |(s, _)| s.layer == Some(layer)).map(|(s, tier)| (&s.op, *tier))
}

#[test]
fn a_device_that_can_do_all_does_all() {
    let (plan, device) = (plan_with_q2_k(&[]), Fake::able("gpu"));
    let placement = place(&plan, &device);
    assert!(placement.tiers.iter().all(|t| *t == Tier::Graph));
    assert_eq!(placement.falls, []);
    assert_eq!(placement.device.as_deref(), Some("gpu"));
    assert_eq!(line(&plan, &device), "3/3 layers on gpu (a fake)");
}

#[test]
fn without_a_device_all_runs_on_the_cpu() {
    let plan = plan_with_q2_k(&[]);
    let cpu = Fake::able("cpu");
    let placement = Placement::compute(&plan, None, &cpu, None).unwrap();
    assert!(placement.tiers.iter().all(|t| *t == Tier::Cpu));
    assert_eq!((placement.device.as_deref(), placement.falls.len()), (None, 0));
    assert_eq!(placement.line(&plan, None, &cpu), "3/3 layers on cpu (a fake)");
}

#[test]
fn one_unsupported_weight_moves_its_own_matmul_to_the_cpu() {
    let plan = plan_with_q2_k(&["blk.1.ffn_up.weight"]);
    let device = Fake::without_format("gpu", Format::Q2_K);
    let placement = place(&plan, &device);
    for layer in [0, 2] {
        assert!(tiers(&plan, &placement, layer).all(|(_, t)| t == Tier::Graph));
    }
    for (op, tier) in tiers(&plan, &placement, 1) {
        let falls = op.weights().iter().any(|w| plan.weight_of(*w).name == "blk.1.ffn_up.weight");
        let expected = match op {
            Op::Linear { .. } if !falls => Tier::Matmul,
            _ => Tier::Cpu,
        };
        assert_eq!(tier, expected, "{op:?}");
    }
    assert_eq!(placement.falls.len(), 1);
    assert_eq!(
        line(&plan, &device),
        "2/3 layers on gpu (a fake); cpu: blk.1.ffn_up.weight (no Q2_K linear kernel)"
    );
}

#[test]
fn the_weight_at_fault_is_named_among_those_of_its_step() {
    let plan = plan_with_q2_k(&["blk.2.attn_v.weight"]);
    let line = line(&plan, &Fake::without_format("gpu", Format::Q2_K));
    assert!(line.contains("blk.2.attn_v.weight (no Q2_K linear kernel)"), "{line}");
}

#[test]
fn a_step_without_a_kernel_leaves_the_matmuls_on_the_device() {
    let (plan, device) = (plan_with_q2_k(&[]), Fake::without_op("gpu", "attend"));
    let placement = place(&plan, &device);
    for layer in 0..N_LAYER {
        for (op, tier) in tiers(&plan, &placement, layer) {
            let expected = if matches!(op, Op::Linear { .. }) { Tier::Matmul } else { Tier::Cpu };
            assert_eq!(tier, expected, "{op:?}");
        }
    }
    assert_eq!(
        line(&plan, &device),
        "0/3 layers on gpu (a fake); cpu: blk.0 attend (attn) and 2 more (no attend kernel)"
    );
}

#[test]
fn every_reason_is_told() {
    let plan = plan_with_q2_k(&["blk.0.ffn_up.weight"]);
    let device = Fake::new("gpu", |op, formats| match op {
        Op::Gate { .. } => Err(Refusal::Device("gate", "no 16-bit floats".into())),
        Op::Linear { .. } if formats.contains(&Format::Q2_K) => Err(Refusal::Format("linear", Format::Q2_K)),
        _ => Ok(()),
    });
    let line = line(&plan, &device);
    for words in
        ["0/3 layers", "blk.0.ffn_up.weight (no Q2_K linear kernel)", "gate: no 16-bit floats", "and 2 more"]
    {
        assert!(line.contains(words), "{line}");
    }
    assert!(!line.contains('\n'));
}

#[test]
fn a_bound_keeps_the_last_layers_on_the_device() {
    let plan = plan_with_q2_k(&[]);
    let (device, cpu) = (Fake::able("gpu"), Fake::able("cpu"));
    for n in 0..=5 {
        let placement = Placement::compute(&plan, Some(&device), &cpu, Some(n)).unwrap();
        for layer in 0..N_LAYER {
            let expected = if layer + n >= N_LAYER { Tier::Graph } else { Tier::Cpu };
            assert!(tiers(&plan, &placement, layer).all(|(_, t)| t == expected), "layer {layer}, bound {n}");
        }
        let head = if n == 0 { Tier::Cpu } else { Tier::Graph };
        assert_eq!(*placement.tiers.last().unwrap(), head, "the head goes with the last layer");
        assert_eq!(placement.device_layers(&plan), n.min(N_LAYER));
        assert_eq!(placement.falls, []);
    }
}

#[test]
fn layers_beyond_the_bound_are_no_falls() {
    let plan = plan_with_q2_k(&["blk.0.ffn_up.weight"]);
    let device = Fake::without_format("gpu", Format::Q2_K);
    let placement = Placement::compute(&plan, Some(&device), &Fake::able("cpu"), Some(2)).unwrap();
    assert_eq!(placement.falls, []);
}

#[test]
fn what_nobody_runs_is_an_error_that_names_the_step() {
    let plan = plan_with_q2_k(&["blk.1.ffn_up.weight"]);
    let neither = || Fake::without_format("cpu", Format::Q2_K);
    let expected =
        Unplaced { step: "blk.1 linear (ffn_up)".into(), refusal: Refusal::Format("linear", Format::Q2_K) };
    assert_eq!(Placement::compute(&plan, None, &neither(), None), Err(expected.clone()));
    assert_eq!(Placement::compute(&plan, Some(&neither()), &neither(), None), Err(expected.clone()));
    assert_eq!(expected.to_string(), "blk.1 linear (ffn_up) cannot run here: no Q2_K linear kernel");
    // A device that can is enough: the CPU is not asked about what it does not get.
    assert!(Placement::compute(&plan, Some(&Fake::able("gpu")), &neither(), None).is_ok());
}

#[test]
fn nothing_falls_silently() {
    // Those of the plan.
    const OPS: [&str; 8] = ["embed", "norm", "linear", "rope", "attend", "gate", "add", "select"];
    let plan = plan_with_q2_k(&["attn_v.weight", "blk.2.ffn_up.weight"]);
    // Every set of missing kernels, and besides each of them a format.
    for refused in 0..1u32 << OPS.len() {
        let lacks =
            move |op: &Op| OPS.iter().position(|o| *o == op.name()).is_none_or(|i| refused >> i & 1 == 1);
        let device = Fake::new("gpu", move |op, formats| match op {
            _ if lacks(op) => Err(Refusal::Op(op.name())),
            _ if formats.contains(&Format::Q2_K) => Err(Refusal::Format(op.name(), Format::Q2_K)),
            _ => Ok(()),
        });
        let placement = place(&plan, &device);
        let line = line(&plan, &device);
        for (i, (step, tier)) in plan.steps.iter().zip(&placement.tiers).enumerate() {
            let answer = device.supports(&step.op, &plan.formats_of(&step.op));
            match (&answer, placement.falls.iter().find(|f| f.step == i)) {
                (Ok(()), fall) => assert_eq!(fall, None),
                (Err(refusal), fall) => {
                    assert_eq!(fall.map(|f| &f.refusal), Some(refusal));
                    assert_eq!(*tier, Tier::Cpu);
                    assert!(line.contains(&refusal.to_string()), "{line}");
                }
            }
            // The embedding and the head both belong to no layer, and are two parts all the same.
            let part = |i: usize| (plan.steps[i].layer, plan.steps[..i].iter().any(|s| s.layer.is_some()));
            let neighbour_fell = placement.falls.iter().any(|f| match step.layer {
                Some(_) => plan.steps[f.step].layer == step.layer,
                None => part(f.step) == part(i),
            });
            assert_eq!(*tier == Tier::Graph, !neighbour_fell, "{}", plan.describe_step(i));
        }
    }
}
