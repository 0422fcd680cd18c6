//! What a device does not take is refused by name, and falls to the CPU by itself.

mod common;

use common::backend;
use llamay_plan::{Backend, KvId, KvLayer, Op, Plan, Scoring};

/// A plan of an attention step and a router of these sizes.
fn plan(head_dim: usize, n_expert: usize, n_used: usize) -> Plan {
    let mut plan = Plan::default();
    let [q, k, v, out] = ["q", "k", "v", "out"].map(|name| plan.slot(name, head_dim));
    let kv: KvId = plan.kv_layer(KvLayer { heads: 1, head_dim, window: None });
    let attend =
        Op::Attend { q, k, v, out, kv, heads: 1, scale: 1.0, window: None, softcap: None, sinks: None };
    plan.push(Some(0), attend);
    let x = plan.slot("scores", n_expert);
    let [chosen, weights] = ["chosen", "weights"].map(|name| plan.slot(name, n_used));
    let scoring = Scoring::Softmax;
    plan.push(Some(0), Op::Route { x, bias: None, scoring, normalize: false, scale: 1.0, chosen, weights });
    plan
}

#[test]
fn sizes_beyond_shared_memory_are_refused_with_both_numbers() {
    let Some(backend) = backend() else { return };
    let answers = |plan: Plan| -> Vec<Option<String>> {
        let answer = |op| backend.supports_in(&plan, op).err().map(|why| why.to_string());
        plan.steps.iter().map(|step| answer(&step.op)).collect()
    };
    let why = |text: &str| Some(text.to_owned());
    assert_eq!(answers(plan(1024, 1024, 64)), [None, None]);
    let wide = why("attend: 1025 elements of a head are more than 1024");
    assert_eq!(answers(plan(1025, 1024, 64)), [wide, None]);
    let many = why("route: 1025 experts are more than 1024");
    assert_eq!(answers(plan(64, 1025, 64)), [None, many]);
    let chosen = why("route: 65 chosen experts are more than 64");
    assert_eq!(answers(plan(64, 128, 65)), [None, chosen]);
}
