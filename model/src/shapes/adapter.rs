//! LoRA adapters for generated models.

use llamay_gguf::{Error, Writer};
use llamay_plan::{Op, Plan};

use super::weights::Random;

/// Half the range of the elements: with a few dozen ranks the products are about as large as the weights.
const AMPLITUDE: f32 = 0.25;

/// A LoRA adapter in `F32` of every matrix of the plan that can have one, with seeded weights, as a whole file. Those of
/// another `seed` are others; all are multiples of 2⁻⁷.
///
/// # Errors
/// As [`Writer::to_vec`].
pub fn lora_adapter(plan: &Plan, rank: usize, alpha: f32, seed: u32) -> Result<Vec<u8>, Error> {
    let mut writer = Writer::default();
    writer
        .set("general.type", "adapter")
        .set("general.architecture", plan.architecture.as_str())
        .set("adapter.type", "lora")
        .set("adapter.lora.alpha", alpha);
    for (tensor, rows, cols) in matrices(plan) {
        // The token embedding's first half has a row for each token.
        let (a, b) = match tensor {
            "token_embd.weight" => ([rank, rows], [rank, cols]),
            _ => ([cols, rank], [rank, rows]),
        };
        for (half, dims) in [("lora_a", a), ("lora_b", b)] {
            let name = format!("{tensor}.{half}");
            let mut random = Random::new(&format!("{name} {seed}"));
            let mut element = || ((random.next_u64() >> 58) as f32 / 32.0 - 1.0) * AMPLITUDE;
            let values: Vec<f32> = (0..dims[0] * dims[1]).map(|_| element()).collect();
            writer.tensor_f32(&name, &dims.map(|d| d as u64), &values);
        }
    }
    writer.to_vec()
}

/// Names, rows and row lengths of the matrices that an adapter can change.
fn matrices(plan: &Plan) -> Vec<(&str, usize, usize)> {
    let read_by = |name: &str, wanted: fn(&Op) -> bool| {
        plan.steps
            .iter()
            .any(|step| wanted(&step.op) && step.op.weights().iter().any(|w| plan.weight_of(*w).name == name))
    };
    let can = |name: &str| {
        let product = read_by(name, |op| matches!(op, Op::Linear { .. }));
        let lookup = read_by(name, |op| matches!(op, Op::Embed { .. }));
        name.ends_with(".weight") && if name == "token_embd.weight" { !product } else { product && !lookup }
    };
    let weights = plan.weights.iter().filter(|w| can(&w.name));
    weights.map(|w| (w.name.as_str(), w.rows, w.cols)).collect()
}
