//! Piecewise functions.

use llamay_plan::Gating;

use super::{flush, sigmoid};

/// max(x, 0).
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    // A NaN compares false and stays.
    if x <= 0.0 { 0.0 } else { flush(x) }
}

/// max(x, 0)².
#[inline(always)]
pub fn relu_squared(x: f32) -> f32 {
    let x = relu(x);
    flush(x * x)
}

/// [`Gating::ClippedSwiglu`]: bounded above, or on both sides, and then `g σ(1.702 g) · (u + 1)`.
#[inline(always)]
pub fn clipped_swiglu(gate: f32, up: f32) -> f32 {
    const LIMIT: f32 = Gating::CLIPPED_LIMIT;
    let gate = if gate > LIMIT { LIMIT } else { gate };
    let up = if up > LIMIT { LIMIT } else { up };
    let up = if up < -LIMIT { -LIMIT } else { up };
    flush(gate * sigmoid(Gating::CLIPPED_ALPHA * gate)) * (up + 1.0)
}
