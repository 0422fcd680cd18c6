//! How a model is opened.

use std::sync::Arc;

use llamay_cpu::Isa;
use llamay_gguf::Gguf;
use llamay_model::PlanOptions;
use llamay_plan::{Backend, KvType};

use crate::{AdapterFile, DeviceChoice, Error, adapters};

/// Options of [`crate::Model::open`]. The default takes everything from the machine and the model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads; `None` takes those that affinity and cgroup quota give.
    pub threads: Option<usize>,
    /// The most capable instruction set to use; `None` for the best there is.
    pub isa: Option<Isa>,
    /// Positions of a session; `None` for what the model was trained with.
    pub context: Option<usize>,
    /// Element type of the KV cache.
    pub kv: KvType,
    /// Tokens of one forward call in prefill; `None` for 512.
    pub batch: Option<usize>,
    /// Read weights from the file as they are used instead of packing them into memory at load: slower, and for models
    /// larger than memory.
    pub no_repack: bool,
    /// The device that runs the model.
    pub device: DeviceChoice,
    /// Layers that run on the device, the last ones first; `None` for as many as its memory holds.
    pub gpu_layers: Option<u32>,
    /// A device of the caller's own, in place of [`Options::device`].
    pub backend: Option<CustomBackend>,
    /// LoRA adapters, applied in this order.
    pub adapters: Vec<AdapterFile>,
    /// Bytes of memory that have to be left, as for a draft model that is opened next; see [`crate::Model::needs`].
    pub reserved: u64,
}

/// A device that the caller brings.
#[derive(Clone)]
pub struct CustomBackend(pub Arc<dyn Backend>);

impl std::fmt::Debug for CustomBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CustomBackend").field(&self.0.name()).finish()
    }
}

impl Options {
    /// The same for the draft model in a file: without adapters, and with a context no longer than it was trained for.
    ///
    /// # Errors
    /// A file that holds no model that llamay runs.
    pub fn for_draft(&self, draft: &Gguf) -> Result<Options, Error> {
        adapters::refuse(draft)?;
        let plan = llamay_model::load_with(draft, PlanOptions::default())?.plan;
        let context = self.context.map(|n| n.min(plan.n_ctx_train as usize).max(1));
        Ok(Options { context, adapters: Vec::new(), reserved: 0, gpu_layers: None, ..self.clone() })
    }

    /// The options that the environment asks for: `LLAMAY_BACKEND=portable`, `LLAMAY_ISA`, `LLAMAY_THREADS`,
    /// `LLAMAY_NO_REPACK`, `LLAMAY_GPU`.
    ///
    /// # Errors
    /// A variable with a value that is none of the known ones.
    pub fn from_env() -> Result<Options, Error> {
        Options::from_vars(|name| std::env::var(name).ok())
    }

    /// As [`Options::from_env`], from any source of variables.
    ///
    /// # Errors
    /// A variable with a value that is none of the known ones.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Options, Error> {
        let get = |name: &'static str| var(name).filter(|v| !v.is_empty());
        let bad = |name: &'static str, value: String, wanted: String| Error::Variable { name, value, wanted };
        let mut options = Options::default();
        if let Some(value) = get("LLAMAY_ISA") {
            let names: Vec<&str> = Isa::ALL.iter().map(|i| i.name()).collect();
            options.isa =
                Some(Isa::from_name(&value).ok_or_else(|| bad("LLAMAY_ISA", value, names.join(", ")))?);
        }
        match get("LLAMAY_BACKEND").as_deref() {
            None | Some("cpu") => {}
            Some("portable") => options.isa = Some(Isa::Portable),
            Some(other) => return Err(bad("LLAMAY_BACKEND", other.to_owned(), "cpu, portable".to_owned())),
        }
        if let Some(value) = get("LLAMAY_GPU") {
            options.device =
                DeviceChoice::parse(&value).map_err(|wanted| bad("LLAMAY_GPU", value, wanted))?;
        }
        if let Some(value) = get("LLAMAY_THREADS") {
            let n = value.parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
            let wanted = format!("a number from 1 to {MAX_THREADS}");
            options.threads = Some(n.ok_or_else(|| bad("LLAMAY_THREADS", value, wanted))?);
        }
        options.no_repack = match get("LLAMAY_NO_REPACK").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(bad("LLAMAY_NO_REPACK", other.to_owned(), "0, 1".to_owned())),
        };
        Ok(options)
    }
}

/// Threads that anybody may sensibly ask for.
pub const MAX_THREADS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Options, Error> {
        Options::from_vars(|n| (n == name).then(|| value.to_owned()))
    }

    #[test]
    fn variables_choose_and_bad_ones_say_what_is_right() {
        assert_eq!(with("LLAMAY_BACKEND", "portable").unwrap().isa, Some(Isa::Portable));
        assert_eq!(with("LLAMAY_ISA", "avx2").unwrap().isa, Some(Isa::Avx2));
        assert_eq!(with("LLAMAY_THREADS", "3").unwrap().threads, Some(3));
        assert_eq!(with("LLAMAY_THREADS", "").unwrap().threads, None);
        assert!(with("LLAMAY_NO_REPACK", "1").unwrap().no_repack);
        assert!(!with("LLAMAY_NO_REPACK", "0").unwrap().no_repack);
        assert_eq!(with("LLAMAY_GPU", "off").unwrap().device, DeviceChoice::Cpu);
        for (name, value, part) in [
            ("LLAMAY_ISA", "sse", "avx2"),
            ("LLAMAY_BACKEND", "cuda", "portable"),
            ("LLAMAY_THREADS", "0", "from 1 to"),
            ("LLAMAY_NO_REPACK", "yes", "0, 1"),
            ("LLAMAY_GPU", "cuda:0", "auto, off"),
        ] {
            let message = with(name, value).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(part), "{message}");
        }
    }
}
