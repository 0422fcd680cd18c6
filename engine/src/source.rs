//! A GGUF file as the source of a plan's weights.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use llamay_gguf::{Gguf, TensorInfo};
use llamay_plan::{Plan, WeightId, WeightSource};

/// The weights of a plan, in an opened file.
pub(crate) struct GgufWeights {
    gguf: Arc<Gguf>,
    plan: Arc<Plan>,
}

impl GgufWeights {
    pub(crate) fn new(gguf: Arc<Gguf>, plan: Arc<Plan>) -> GgufWeights {
        GgufWeights { gguf, plan }
    }

    fn tensor(&self, weight: WeightId) -> Option<&TensorInfo> {
        self.gguf.tensor(&self.plan.weight_of(weight).name)
    }
}

impl WeightSource for GgufWeights {
    fn bytes(&self, weight: WeightId) -> Result<Cow<'_, [u8]>, String> {
        let tensor = self.tensor(weight).ok_or_else(|| "the file has no such tensor".to_owned())?;
        self.gguf.data(tensor).map_err(|e| e.to_string())
    }

    fn release(&self, weight: WeightId, bytes: Range<usize>) {
        if let Some(tensor) = self.tensor(weight) {
            self.gguf.release_range(tensor, bytes);
        }
    }
}
