//! What a file holds and what it would take to run it, without loading it.

use llamay_cpu::CpuBackend;
use llamay_gguf::{Gguf, TensorType};
use llamay_model::PlanOptions;
use llamay_model::lora::{Adapter, LoraError, is_adapter};
use llamay_plan::{KvGroup, Op, Plan};
use llamay_tokenizer::{Kind, Tokenizer};

use crate::adapters::{self, AdapterSource};
use crate::model::context;
use crate::{Error, Memory, Model, Options, devices, share};

/// A file, seen from outside.
#[derive(Debug)]
pub struct Inspection {
    /// `general.architecture`, if the file has one.
    pub architecture: Option<String>,
    /// Models that come as this architecture, if it is a supported one.
    pub models: Option<&'static str>,
    /// Elements of all tensors.
    pub n_params: u64,
    /// Bytes of all tensors of known types.
    pub tensor_bytes: u64,
    /// Tensor types, the one with the most bytes first.
    pub formats: Vec<FormatUse>,
    /// What running it takes, or why it does not run.
    pub run: Result<Runnable, Error>,
    /// The vocabulary, or why it cannot be used.
    pub vocabulary: Result<Vocabulary, Error>,
    /// Whether the file has a chat template.
    pub has_template: bool,
    /// The adapter that the file holds in place of a model, or why it cannot be used; `None` for a model.
    pub adapter: Option<Result<Adapter, LoraError>>,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatUse {
    /// The type.
    pub kind: TensorType,
    /// How many tensors have it.
    pub tensors: usize,
    /// Elements of these tensors.
    pub elements: u64,
    /// Bytes of these tensors; 0 if the type is unknown.
    pub bytes: u64,
}

/// What running a model takes.
#[derive(Clone, Debug)]
pub struct Runnable {
    /// Where its steps would run.
    pub placement: String,
    /// Bytes of the weights and of the cache.
    pub memory: Memory,
    /// Cache layers by what they keep.
    pub kv_groups: Vec<KvGroup>,
    /// Positions of a session.
    pub context: usize,
    /// Positions that the model was trained with.
    pub n_ctx_train: usize,
    /// Entries of the vocabulary, as the logits have them.
    pub n_vocab: usize,
    /// Layers.
    pub n_layer: u32,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// The most positions that the model has; `None` if it has no bound.
    pub n_ctx_max: Option<usize>,
    /// The mixtures of experts, if the model has any.
    pub experts: Option<ExpertUse>,
    /// Tensors of the file that no step reads.
    pub unused: Vec<String>,
}

/// What a token visits of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertUse {
    /// Experts of a layer.
    pub n_expert: usize,
    /// How many of them a token visits.
    pub n_used: usize,
    /// Elements of the experts' matrices that a token does not visit, over all layers.
    pub n_idle: u64,
}

/// A vocabulary's outline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// The algorithm.
    pub kind: Kind,
    /// The pre-tokenizer, of BPE.
    pub pre: Option<&'static str>,
    /// Number of tokens.
    pub n_tokens: usize,
}

impl Model {
    /// Looks at a file that need not be runnable, and loads none of its weights.
    pub fn inspect(gguf: &Gguf, options: &Options) -> Inspection {
        let formats = formats(gguf);
        let architecture = gguf.metadata().str("general.architecture").ok().flatten();
        let known = llamay_model::ARCHITECTURES.iter().find(|a| Some(a.name) == architecture);
        Inspection {
            architecture: architecture.map(str::to_owned),
            models: known.map(|a| a.models),
            n_params: gguf.tensors().iter().fold(0, |n, t| n.saturating_add(t.n_elements())),
            tensor_bytes: formats.iter().map(|f| f.bytes).sum(),
            formats,
            run: runnable(gguf, options),
            vocabulary: vocabulary(gguf),
            has_template: matches!(gguf.metadata().str("tokenizer.chat_template"), Ok(Some(_))),
            adapter: is_adapter(gguf).then(|| Adapter::read(gguf)),
        }
    }
}

fn formats(gguf: &Gguf) -> Vec<FormatUse> {
    let mut formats: Vec<FormatUse> = Vec::new();
    for tensor in gguf.tensors() {
        let at = formats.iter().position(|f| f.kind == tensor.kind).unwrap_or_else(|| {
            formats.push(FormatUse { kind: tensor.kind, tensors: 0, elements: 0, bytes: 0 });
            formats.len() - 1
        });
        let format = &mut formats[at];
        format.tensors += 1;
        format.elements = format.elements.saturating_add(tensor.n_elements());
        format.bytes = format.bytes.saturating_add(tensor.n_bytes().unwrap_or(0));
    }
    formats.sort_by_key(|f| std::cmp::Reverse(f.bytes));
    formats
}

fn runnable(gguf: &Gguf, options: &Options) -> Result<Runnable, Error> {
    adapters::refuse(gguf)?;
    let mut loaded = llamay_model::load_with(gguf, PlanOptions { n_ctx: options.context })?;
    adapters::apply_all(&mut loaded.plan, &AdapterSource::open_all(&options.adapters)?)?;
    let plan = &loaded.plan;
    let cpu = CpuBackend::new(options.isa, options.threads.unwrap_or_else(llamay_cpu::available_threads));
    let context = context(plan, options)?;
    Ok(Runnable {
        placement: share::out(plan, devices::of(options)?, &cpu, options, context)?.line,
        memory: Memory::of(plan, options, context),
        kv_groups: plan.kv_groups(),
        context,
        n_ctx_train: plan.n_ctx_train as usize,
        n_vocab: plan.n_vocab,
        n_layer: plan.n_layer,
        n_embd: plan.n_embd,
        n_ctx_max: plan.n_ctx_max(),
        experts: experts(plan),
        unused: loaded.unused,
    })
}

fn experts(plan: &Plan) -> Option<ExpertUse> {
    let mut found: Option<ExpertUse> = None;
    for step in &plan.steps {
        let Op::ExpertLinear { x: _, cols, chosen, projections } = &step.op else { continue };
        let n_used = plan.slot_of(*chosen).width;
        for p in projections {
            let n_expert = p.experts.len();
            let rows = plan.slot_of(p.out).width / n_used;
            let idle = (rows * cols) as u64 * (n_expert - n_used) as u64;
            let found = found.get_or_insert(ExpertUse { n_expert, n_used, n_idle: 0 });
            found.n_idle = found.n_idle.saturating_add(idle);
        }
    }
    found
}

fn vocabulary(gguf: &Gguf) -> Result<Vocabulary, Error> {
    let tokenizer = Tokenizer::from_gguf(gguf)?;
    Ok(Vocabulary { kind: tokenizer.kind(), pre: tokenizer.pre_name(), n_tokens: tokenizer.n_tokens() })
}

#[cfg(test)]
mod tests {
    use llamay_formats::Format;
    use llamay_gguf::Writer;
    use llamay_model::shapes::{Shape, lora_adapter};

    use super::*;

    #[test]
    fn a_runnable_file_tells_what_it_takes() {
        let shape = Shape::named("llama-gqa").unwrap();
        let gguf = Gguf::from_bytes(shape.gguf(Format::Q8_0).unwrap()).unwrap();
        let options = Options { threads: Some(1), context: Some(100), ..Options::default() };
        let seen = Model::inspect(&gguf, &options);
        let run = seen.run.unwrap();
        assert_eq!(run.memory.full(), run.memory.weights + 100 * run.memory.cache_per_token);
        assert_eq!(seen.formats[0].kind, TensorType::Known(Format::Q8_0), "most bytes first");
        assert_eq!(seen.formats.iter().map(|f| f.tensors).sum::<usize>(), gguf.tensors().len());
        assert!(seen.has_template && seen.vocabulary.unwrap().kind == Kind::Bpe);
    }

    #[test]
    fn a_mixture_tells_what_a_token_visits() {
        let shape = Shape::named("mixtral").unwrap();
        let gguf = Gguf::from_bytes(shape.gguf(Format::Q8_0).unwrap()).unwrap();
        let seen = Model::inspect(&gguf, &Options::default());
        let experts = seen.run.unwrap().experts.unwrap();
        let in_experts = gguf.tensors().iter().filter(|t| t.name.contains("_exps"));
        let in_experts: u64 = in_experts.map(|t| t.n_elements()).sum();
        let (all, used) = (experts.n_expert as u64, experts.n_used as u64);
        assert_eq!(experts.n_idle, in_experts / all * (all - used));
        assert_eq!((seen.architecture.as_deref(), seen.models.is_some()), (Some("llama"), true));
    }

    #[test]
    fn a_file_that_cannot_run_says_why_and_still_has_its_figures() {
        let mut writer = Writer::default();
        writer.set("general.architecture", "mamba").tensor_f32("x", &[4], &[0.0; 4]);
        let gguf = Gguf::from_bytes(writer.to_vec().unwrap()).unwrap();
        let seen = Model::inspect(&gguf, &Options::default());
        assert!(seen.run.unwrap_err().to_string().contains("mamba"));
        assert!(seen.vocabulary.is_err());
        assert_eq!((seen.n_params, seen.tensor_bytes), (4, 16));
        assert!(seen.adapter.is_none());
    }

    #[test]
    fn an_adapter_is_no_model_and_says_what_it_is() {
        let shape = Shape::named("llama-gqa").unwrap();
        let plan = llamay_model::plan(&Gguf::from_bytes(shape.gguf(Format::F32).unwrap()).unwrap()).unwrap();
        let gguf = Gguf::from_bytes(lora_adapter(&plan, 4, 8.0, 1).unwrap()).unwrap();
        let seen = Model::inspect(&gguf, &Options::default());
        assert!(seen.run.unwrap_err().to_string().contains("--lora"));
        let adapter = seen.adapter.unwrap().unwrap();
        assert_eq!((adapter.architecture(), adapter.ranks(), adapter.alpha()), ("llama", (4, 4), 8.0));
        assert_eq!(adapter.n_params(), seen.n_params);
    }
}
