//! GGUF files as the source of a plan's weights: the model's, and those of its adapters.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use llamay_gguf::{Gguf, TensorInfo};
use llamay_model::lora::tensor_of;
use llamay_plan::{Plan, WeightId, WeightSource};

/// The weights of a plan, in opened files.
pub(crate) struct GgufWeights {
    model: Arc<Gguf>,
    adapters: Vec<Gguf>,
    plan: Arc<Plan>,
}

impl GgufWeights {
    pub(crate) fn new(model: Arc<Gguf>, adapters: Vec<Gguf>, plan: Arc<Plan>) -> GgufWeights {
        GgufWeights { model, adapters, plan }
    }

    /// The file that has the weight, and where.
    fn tensor(&self, weight: WeightId) -> Option<(&Gguf, &TensorInfo)> {
        let name = self.plan.weight_of(weight).name.as_str();
        let (file, name) = match tensor_of(name) {
            Some((adapter, name)) => (self.adapters.get(adapter)?, name),
            None => (&*self.model, name),
        };
        Some((file, file.tensor(name)?))
    }
}

impl WeightSource for GgufWeights {
    fn bytes(&self, weight: WeightId) -> Result<Cow<'_, [u8]>, String> {
        let (file, tensor) = self.tensor(weight).ok_or_else(|| "the file has no such tensor".to_owned())?;
        file.data(tensor).map_err(|e| e.to_string())
    }

    fn prefetch(&self, weight: WeightId, bytes: Range<usize>) {
        if let Some((file, tensor)) = self.tensor(weight) {
            file.prefetch_range(tensor, bytes);
        }
    }

    fn release(&self, weight: WeightId, bytes: Range<usize>) {
        if let Some((file, tensor)) = self.tensor(weight) {
            file.release_range(tensor, bytes);
        }
    }
}
