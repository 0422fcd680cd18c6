//! What steps cost, against counts made by hand.

use llamay_plan::{
    Batch, BatchToken, Bound, Ceilings, Cost, CostModel, ExpertProjection, Format, Gating, Index, KvLayer,
    KvType, Nonlinearity, NormKind, Op, Plan, Projection, Rope, RopePairs, Rows, Scoring, SlotId, Weight,
};

/// Bytes as in the file.
fn in_file(format: Format) -> usize {
    format.block_bytes()
}

fn cost_of(plan: &Plan, op: &Op, rows: usize, tokens: &[BatchToken], experts: &[usize]) -> Cost {
    let model = CostModel { kv: KvType::F16, block_bytes: &in_file };
    model.step(plan, op, rows, &Batch { tokens, tables: &[] }, experts)
}

fn token(sequence: u32, position: u32, wants_logits: bool) -> BatchToken {
    BatchToken { token: 1, position, sequence, wants_logits }
}

fn rows_of(plan: &mut Plan, name: &str, format: Format, rows: usize, cols: usize) -> Rows {
    Rows { weight: plan.weight(Weight { name: name.to_owned(), format, rows, cols }), first_row: 0 }
}

#[test]
fn a_linear_step_reads_its_weights_once_and_multiplies_for_every_row() {
    let mut plan = Plan::default();
    let (x, a, b) = (plan.slot("x", 64), plan.slot("a", 10), plan.slot("b", 6));
    let q4 = rows_of(&mut plan, "blk.0.attn_q.weight", Format::Q4_0, 10, 64);
    let f16 = rows_of(&mut plan, "blk.0.attn_k.weight", Format::F16, 6, 64);
    let bias = rows_of(&mut plan, "blk.0.attn_q.bias", Format::F32, 1, 10);
    let op = Op::Linear {
        x,
        projections: vec![
            Projection { weight: q4, bias: Some(bias), out: a },
            Projection { weight: f16, bias: None, out: b },
        ],
    };
    assert_eq!(
        cost_of(&plan, &op, 3, &[], &[]),
        Cost {
            // 18 bytes hold 32 weights of Q4_0, two blocks a row; a bias is floats.
            weight_bytes: 10 * 2 * 18 + 10 * 4 + 6 * 64 * 2,
            cache_bytes: 0,
            activation_bytes: 3 * 4 * (64 + 10 + 6),
            int8_macs: 3 * 10 * 64,
            f32_macs: 3 * 6 * 64,
        }
    );
    assert_eq!(plan.step_label(&op), "linear q+k Q4_0+F16");
    let packed = CostModel { kv: KvType::F16, block_bytes: &|format| in_file(format) + 2 };
    let cost = packed.step(&plan, &op, 1, &Batch { tokens: &[], tables: &[] }, &[]);
    assert_eq!(cost.weight_bytes, 10 * 2 * 20 + 10 * 4 + 6 * 64 * 4, "as the device has them");
}

/// Attention of 4 heads over a cache layer of 2 heads of 8 elements.
fn attention(window: Option<u32>) -> (Plan, Op) {
    let mut plan = Plan::default();
    let (q, k, v) = (plan.slot("q", 32), plan.slot("k", 16), plan.slot("v", 16));
    let out = plan.slot("out", 32);
    let kv = plan.kv_layer(KvLayer { heads: 2, head_dim: 8, window });
    (plan, Op::Attend { q, k, v, out, kv, heads: 4, scale: 1.0, window, softcap: None, sinks: None })
}

/// Bytes of a position's keys and values as half floats.
const POSITION: u64 = 2 * 2 * 8 * 2;

#[test]
fn a_token_reads_all_that_it_sees_of_the_cache() {
    let (plan, op) = attention(None);
    let cost = cost_of(&plan, &op, 1, &[token(0, 99, true)], &[]);
    assert_eq!(cost.cache_bytes, 100 * POSITION + POSITION, "100 read, one written");
    assert_eq!(cost.f32_macs, 2 * 100 * 32, "scores and values");
    assert_eq!(cost.activation_bytes, 4 * (32 + 16 + 16 + 32));
    let (plan, op) = attention(Some(8));
    let cost = cost_of(&plan, &op, 1, &[token(0, 99, true)], &[]);
    assert_eq!((cost.cache_bytes, cost.f32_macs), (9 * POSITION, 2 * 8 * 32), "the window");
    assert_eq!(plan.step_label(&op), "attention window 8");
}

#[test]
fn tokens_of_a_sequence_share_what_they_read() {
    let (plan, op) = attention(None);
    let prompt: Vec<BatchToken> = (10..14).map(|p| token(0, p, false)).collect();
    let cost = cost_of(&plan, &op, 4, &prompt, &[]);
    assert_eq!(cost.cache_bytes, (14 + 4) * POSITION);
    assert_eq!(cost.f32_macs, 2 * (11 + 12 + 13 + 14) * 32);
    // The first sees positions 3 to 10, the last ends at 13.
    let (windowed, windowed_op) = attention(Some(8));
    let cost = cost_of(&windowed, &windowed_op, 4, &prompt, &[]);
    assert_eq!((cost.cache_bytes, cost.f32_macs), ((11 + 4) * POSITION, 2 * 4 * 8 * 32));
    // Two sequences share nothing.
    let two = [token(0, 4, true), token(1, 4, true)];
    assert_eq!(cost_of(&plan, &op, 2, &two, &[]).cache_bytes, 2 * (5 + 1) * POSITION);
}

#[test]
fn experts_that_nobody_chose_are_not_read() {
    let mut plan = Plan::default();
    let (x, chosen, out) = (plan.slot("x", 32), plan.slot("chosen", 2), plan.slot("out", 2 * 5));
    let stack = rows_of(&mut plan, "blk.0.ffn_up_exps.weight", Format::Q8_0, 4 * 5, 32);
    let experts = (0..4).map(|e| Rows { first_row: 5 * e, ..stack }).collect();
    let bias = rows_of(&mut plan, "blk.0.ffn_up_exps.bias", Format::F32, 4, 5).weight;
    let op = Op::ExpertLinear {
        x,
        cols: 32,
        chosen,
        projections: vec![ExpertProjection { experts, bias: Some(bias), out }],
    };
    let cost = cost_of(&plan, &op, 3, &[], &[0, 2, 3]);
    assert_eq!(
        cost,
        Cost {
            weight_bytes: 3 * (5 * 34 + 5 * 4),
            cache_bytes: 0,
            activation_bytes: 3 * 4 * (32 + 2 + 10),
            int8_macs: 3 * 2 * 5 * 32,
            f32_macs: 0,
        }
    );
    assert_eq!(cost_of(&plan, &op, 3, &[], &[]).weight_bytes, 0);
    assert_eq!(plan.step_label(&op), "experts up Q8_0");
}

#[test]
fn elementwise_steps_move_their_slots() {
    let mut plan = Plan::default();
    let slot = |plan: &mut Plan, width| plan.slot("s", width);
    let (x, y, few): (SlotId, SlotId, SlotId) = (slot(&mut plan, 8), slot(&mut plan, 8), slot(&mut plan, 2));
    let vector = rows_of(&mut plan, "norm", Format::F32, 1, 8).weight;
    let table = rows_of(&mut plan, "embd", Format::Q8_0, 9, 32).weight;
    let wide = slot(&mut plan, 32);
    let rope = plan.rope(Rope {
        frequencies: vec![1.0; 2],
        pairs: RopePairs::Halves,
        magnitudes: vec![1.0],
        magnitude_span: 1,
    });
    let tokens = [token(0, 0, false), token(0, 1, true), token(0, 2, true)];
    let f = Gating::Product(Nonlinearity::Silu);
    let norm =
        Op::Norm { x, kind: NormKind::Rms, weight: Some(vector), bias: None, eps: 0.0, heads: 1, out: y };
    let route = Op::Route {
        x,
        bias: Some(vector),
        scoring: Scoring::Softmax,
        normalize: false,
        scale: 1.0,
        chosen: few,
        weights: few,
    };
    // Weight bytes, floats a row, multiply-adds a row.
    for (op, weight_bytes, floats, macs) in [
        (Op::Embed { weight: table, index: Index::Token, out: wide, scale: 1.0 }, 3 * 34, 32, 32),
        (norm, 8 * 4, 16, 8),
        // Two of four pairs of each of the two heads turn.
        (Op::Rope { x, heads: 2, head_dim: 4, rope }, 0, 2 * 8, 8),
        (Op::Gate { gate: x, up: y, out: x, f }, 0, 24, 8),
        (Op::Activate { x, f: Nonlinearity::Relu, out: x }, 0, 16, 8),
        (Op::Scale { x, scale: 2.0, out: x }, 0, 16, 8),
        (Op::Softcap { x, cap: 2.0, out: x }, 0, 16, 8),
        (Op::Add { x, y, scale: 1.0, out: x }, 0, 24, 8),
        (route, 8 * 4, 8 + 2 + 2, 8),
        (Op::Combine { x, weights: few, out: few }, 0, 8 + 2 + 2, 8),
    ] {
        let wanted =
            Cost { weight_bytes, activation_bytes: 3 * 4 * floats, f32_macs: 3 * macs, ..Cost::default() };
        assert_eq!(cost_of(&plan, &op, 3, &tokens, &[]), wanted, "{op:?}");
    }
    let select = cost_of(&plan, &Op::Select { slots: vec![x, y] }, 3, &tokens, &[]);
    assert_eq!((select.activation_bytes, select.macs()), (2 * 2 * 4 * 16, 0), "two of three want logits");
}

#[test]
fn the_ceiling_that_takes_longest_binds() {
    let c = Ceilings { read: 10.0, read_set: 1, memory: 5.0, int8_macs: 100.0, f32_macs: 20.0 };
    let cost =
        |weight_bytes, int8_macs, f32_macs| Cost { weight_bytes, int8_macs, f32_macs, ..Cost::default() };
    assert_eq!(c.least_seconds(&cost(20, 100, 0)), (2.0, Bound::Read));
    assert_eq!(c.least_seconds(&cost(1, 300, 20)), (4.0, Bound::Int8), "both kinds take turns");
    assert_eq!(c.least_seconds(&cost(1, 100, 40)), (3.0, Bound::F32));
    assert_eq!(c.least_seconds(&Cost::default()), (0.0, Bound::Read));
    assert_eq!((cost(4, 1, 1).intensity(), Cost::default().intensity()), (0.5, 0.0));
}
