//! An opened model.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llamay_cpu::CpuBackend;
use llamay_gguf::Gguf;
use llamay_model::PlanOptions;
use llamay_plan::{
    Backend, ExecError, Executor, KvType, LoadOptions, Placement, Plan, Profile, WeightSource,
};
use llamay_tokenizer::Tokenizer;
use llamay_tokenizer::template::ChatTemplate;

use crate::adapters::{self, AdapterSource};
use crate::hybrid::Hybrid;
use crate::pages::Pages;
use crate::share::{self, Shares};
use crate::source::GgufWeights;
use crate::{DeviceChoice, Error, Options, Session, devices};

/// Tokens of one forward call in prefill, as long as nothing else is asked for.
pub const DEFAULT_BATCH: usize = 512;

/// A model, loaded and ready to run. Cheap to clone; clones share the weights.
#[derive(Clone)]
pub struct Model {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    gguf: Arc<Gguf>,
    plan: Arc<Plan>,
    tokenizer: Tokenizer,
    placement_line: String,
    /// The GPU that runs some of the plan.
    device: Option<String>,
    /// What the user should hear of what happened since.
    notices: Mutex<Vec<String>>,
    warnings: Vec<String>,
    context: usize,
    memory: Memory,
    pub(crate) batch: usize,
    pub(crate) kv: KvType,
    pub(crate) n_kv_groups: usize,
    state: Mutex<State>,
}

/// Loads the plan on the CPU.
pub(crate) type Fallback = Box<dyn Fn() -> Result<Box<dyn Executor>, ExecError> + Send>;

/// What a forward call changes.
pub(crate) struct State {
    pub(crate) executor: Box<dyn Executor>,
    /// Loads the whole plan on the CPU, where a device is in use that may be lost.
    pub(crate) fallback: Option<Fallback>,
    /// Times that the executor was replaced. A session's cache that was filled before is void.
    pub(crate) epoch: u64,
    /// One a group of cache layers.
    pub(crate) pages: Vec<Pages>,
    /// LoRA adapters in the plan, and their scales.
    pub(crate) adapters: Vec<adapters::Loaded>,
    /// Logits of the last call; kept, since a fresh buffer of that size costs page faults for every token.
    pub(crate) logits: Vec<f32>,
}

impl State {
    /// Replaces an executor whose device is lost by one on the CPU. What is in the cache is lost with the device, so every
    /// session computes its tokens again, to the same bits.
    ///
    /// # Errors
    /// If there is no device but the CPU, or no memory for the weights.
    pub(crate) fn fall_to_cpu(&mut self) -> Result<(), ExecError> {
        let none = || ExecError::OutOfMemory { what: "another device", bytes: 0 };
        let mut executor = self.fallback.as_ref().ok_or_else(none)?()?;
        executor.change_steps(&adapters::all_changes(&self.adapters))?;
        for (group, pages) in self.pages.iter().enumerate() {
            executor.reserve_pages(group, pages.len())?;
        }
        (self.executor, self.fallback) = (executor, None);
        self.epoch += 1;
        Ok(())
    }

    /// Whether no session holds tokens.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.iter().all(Pages::all_free)
    }
}

/// What a model takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The weights; none where they stay in the file.
    pub weights: u64,
    /// The KV cache of one position, in all layers.
    pub cache_per_token: u64,
    /// The KV cache of a session that fills the context; less than the product where layers have windows.
    pub cache: u64,
}

impl Memory {
    pub(crate) fn of(plan: &Plan, options: &Options, context: usize) -> Memory {
        Memory {
            weights: weight_bytes(plan, options),
            cache_per_token: plan.kv_bytes_per_token(options.kv) as u64,
            cache: plan.kv_bytes(options.kv, context, batch(options)),
        }
    }

    /// Bytes of the weights and of a full session.
    pub fn full(&self) -> u64 {
        self.weights.saturating_add(self.cache)
    }
}

/// Bytes of the weights in memory that are more than a copy of what the system may read again from the file.
fn weight_bytes(plan: &Plan, options: &Options) -> u64 {
    if options.no_repack { 0 } else { plan.weight_bytes() as u64 }
}

/// The results of both: of the first from a thread of its own, if `parallel` and there is one to be had.
fn beside<A: Send, B>(parallel: bool, a: impl Fn() -> A + Sync, b: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = parallel.then(|| std::thread::Builder::new().spawn_scoped(scope, &a));
        let b = b();
        let a = match thread {
            Some(Ok(thread)) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            _ => a(),
        };
        (a, b)
    })
}

/// Tokens of a forward call.
pub(crate) fn batch(options: &Options) -> usize {
    options.batch.unwrap_or(DEFAULT_BATCH).max(1)
}

impl Model {
    /// Opens a model and loads its weights.
    ///
    /// `progress` hears the bytes of weights loaded so far, out of all.
    ///
    /// # Errors
    /// A file that is no valid GGUF, a model or vocabulary that llamay does not run, or too little memory, before the
    /// weights are loaded; and a vocabulary that contradicts itself, which is read meanwhile.
    pub fn open(
        path: impl AsRef<Path>,
        options: &Options,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Model, Error> {
        Model::from_gguf(Gguf::open(path)?, options, progress)
    }

    /// As [`Model::open`], from a file that is open already, or made in memory.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_gguf(
        gguf: Gguf,
        options: &Options,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Model, Error> {
        Model::with_adapters(gguf, AdapterSource::open_all(&options.adapters)?, options, progress)
    }

    /// As [`Model::from_gguf`], with adapters that are open already, or made in memory, in place of those of the options.
    ///
    /// # Errors
    /// As [`Model::open`]; and an adapter that does not fit the model.
    pub fn with_adapters(
        gguf: Gguf,
        adapters: Vec<AdapterSource>,
        options: &Options,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Model, Error> {
        adapters::refuse(&gguf)?;
        let gguf = Arc::new(gguf);
        let loaded = llamay_model::load_with(&gguf, PlanOptions { n_ctx: options.context })?;
        let mut plan = loaded.plan;
        let (applied, odd) = adapters::apply_all(&mut plan, &adapters)?;
        let plan = Arc::new(plan);
        Tokenizer::check(&gguf)?;
        let context = context(&plan, options)?;
        let mut warnings = warnings(&plan, &loaded.unused, options);
        warnings.extend(odd);
        let threads = options.threads.unwrap_or_else(llamay_cpu::available_threads);
        let cpu = Arc::new(CpuBackend::new(options.isa, threads));
        warnings.extend(cpu.faults().iter().cloned());
        let device = devices::of(options)?;
        let Shares { device, placement, line } = share::out(&plan, device, &*cpu, options, context)?;
        let on_cpu = share::cpu_part(&plan, &placement);
        check_memory(&plan, options, &on_cpu, cpu.free_memory())?;
        let files = adapters.into_iter().map(|a| a.gguf).collect();
        let source = Arc::new(GgufWeights::new(Arc::clone(&gguf), files, Arc::clone(&plan)));
        let whole = LoadOptions { kv: options.kv, no_repack: options.no_repack, steps: None };
        let load = || load(&plan, &placement, &source, device.as_deref(), &cpu, &whole, progress);
        let (tokenizer, executor) = beside(cpu.threads() > 1, || Tokenizer::from_gguf(&gguf), load);
        let tokenizer = tokenizer?;
        // Nobody asked for the device, so the model runs without it.
        let optional = options.device == DeviceChoice::Auto && options.gpu_layers.is_none();
        let (mut executor, device, line) = match executor {
            Ok(executor) => (executor, device, line),
            Err(e @ (ExecError::OutOfMemory { .. } | ExecError::DeviceLost { .. }))
                if device.is_some() && optional =>
            {
                warnings.push(format!("{e}; the model runs on the CPU"));
                check_memory(&plan, options, &plan, cpu.free_memory())?;
                let source = Arc::clone(&source) as Arc<dyn WeightSource>;
                let executor = cpu.load(Arc::clone(&plan), source, whole.clone(), progress)?;
                (executor, None, Placement::compute(&plan, None, &*cpu, None)?.line(&plan, None, &*cpu))
            }
            Err(e) => return Err(e.into()),
        };
        executor.change_steps(&adapters::initial_changes(&applied))?;
        let pages: Vec<Pages> = plan.kv_groups().into_iter().map(Pages::new).collect();
        let device_name = device.as_deref().map(Backend::name);
        let fallback = device.map(|_| {
            let plan = Arc::clone(&plan);
            Box::new(move || {
                let source = Arc::clone(&source) as Arc<dyn WeightSource>;
                cpu.load(Arc::clone(&plan), source, whole.clone(), &|_, _| {})
            }) as Fallback
        });
        let inner = Inner {
            placement_line: line,
            device: device_name,
            notices: Mutex::default(),
            context,
            batch: batch(options),
            memory: Memory::of(&plan, options, context),
            kv: options.kv,
            n_kv_groups: pages.len(),
            gguf,
            plan,
            tokenizer,
            warnings,
            state: Mutex::new(State {
                executor,
                fallback,
                epoch: 0,
                pages,
                adapters: applied,
                logits: Vec::new(),
            }),
        };
        Ok(Model { inner: Arc::new(inner) })
    }

    /// Bytes that have to be free to open the file with these options: for the weights, and for a session if the options
    /// say of how many positions. Loads none of the weights.
    ///
    /// # Errors
    /// A file that holds no model that llamay runs.
    pub fn needs(gguf: &Gguf, options: &Options) -> Result<u64, Error> {
        let plan = llamay_model::load_with(gguf, PlanOptions { n_ctx: options.context })?.plan;
        let (weights, cache, _) = needs(&plan, options);
        Ok(weights.saturating_add(cache))
    }

    /// A new, empty session.
    pub fn session(&self) -> Session {
        Session::new(self)
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.inner.gguf
    }

    /// The forward pass.
    pub fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    /// The vocabulary.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// Positions of a session.
    pub fn context(&self) -> usize {
        self.inner.context
    }

    /// Entries of the vocabulary, as the logits have them.
    pub fn n_vocab(&self) -> usize {
        self.inner.plan.n_vocab
    }

    /// One line that says what runs where.
    pub fn placement(&self) -> &str {
        &self.inner.placement_line
    }

    /// What the user should hear about the file: unused tensors, a context beyond the trained one; and about a CPU that
    /// computes wrongly with instructions that it reports.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// The GPU that runs the model or a part of it, such as `vulkan:0`; `None` where the CPU runs all.
    pub fn device(&self) -> Option<&str> {
        self.inner.device.as_deref()
    }

    /// What happened since this was last asked that the user should hear: a device that was lost.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.inner.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps something for [`Model::take_notices`].
    pub(crate) fn notice(&self, text: String) {
        self.inner.notices.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What the model takes.
    pub fn memory(&self) -> Memory {
        self.inner.memory
    }

    /// The file's chat template, compiled; `None` if it has none.
    ///
    /// # Errors
    /// A template that cannot be compiled.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, Error> {
        let Some(source) = self.gguf().metadata().str("tokenizer.chat_template")? else { return Ok(None) };
        let text = |id: Option<u32>| id.map_or("", |id| self.tokenizer().token(id));
        let template = ChatTemplate::new(source, text(self.tokenizer().bos()), text(self.tokenizer().eos()))?;
        Ok(Some(template))
    }

    /// Begins to time and count the steps of all sessions' forward calls, or ends it; what was gathered goes either way.
    pub fn profile(&self, on: bool) {
        self.state().executor.profile(on);
    }

    /// What was gathered since [`Model::profile`] or this was last called.
    pub fn take_profile(&self) -> Profile {
        self.state().executor.take_profile()
    }

    /// The executor and the pages, for one forward call at a time.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a forward call leaves pages and weights whole, so the lock's poison means nothing.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Positions of a session: what the user asks for, or what the model was trained for.
pub(crate) fn context(plan: &Plan, options: &Options) -> Result<usize, Error> {
    let most = plan.n_ctx_max().unwrap_or(usize::MAX);
    match options.context {
        Some(n) if n > most => Err(Error::Unfit(format!(
            "a context of {n} is not possible: the model has an embedding for each of {most} positions"
        ))),
        wish => Ok(wish.unwrap_or(plan.n_ctx_train as usize).clamp(1, most)),
    }
}

fn warnings(plan: &Plan, unused: &[String], options: &Options) -> Vec<String> {
    let mut warnings = Vec::new();
    match unused {
        [] => {}
        [one] => warnings.push(format!("tensor {one} is not used")),
        [first, rest @ ..] => {
            warnings.push(format!("tensor {first} and {} more are not used", rest.len()));
        }
    }
    if let Some(context) = options.context.filter(|c| *c > plan.n_ctx_train as usize) {
        let trained = plan.n_ctx_train;
        warnings.push(format!(
            "a context of {context} is beyond the {trained} positions that the model was trained with"
        ));
    }
    warnings
}

/// Loads the plan where its steps run: on one device, or on two that share it.
fn load(
    plan: &Arc<Plan>,
    placement: &Placement,
    source: &Arc<GgufWeights>,
    device: Option<&dyn Backend>,
    cpu: &CpuBackend,
    whole: &LoadOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Box<dyn Executor>, ExecError> {
    let source = || Arc::clone(source) as Arc<dyn WeightSource>;
    let Some(device) = device else { return cpu.load(Arc::clone(plan), source(), whole.clone(), progress) };
    let on_cpu = share::steps(placement, true);
    if !on_cpu.contains(&true) {
        return device.load(Arc::clone(plan), source(), whole.clone(), progress);
    }
    let part = |steps| LoadOptions { steps: Some(steps), ..whole.clone() };
    let on_device =
        device.load(Arc::clone(plan), source(), part(share::steps(placement, false)), progress)?;
    let on_cpu = cpu.load(Arc::clone(plan), source(), part(on_cpu), progress)?;
    Ok(Box::new(Hybrid::new(Arc::clone(plan), placement, on_device, on_cpu)))
}

/// Bytes of the weights and of a session that the user asked for, and its positions.
///
/// Without a wish the cache grows as it is used, so only the weights and one page count.
fn needs(plan: &Plan, options: &Options) -> (u64, u64, usize) {
    let context = options.context.unwrap_or(llamay_plan::KV_PAGE);
    (weight_bytes(plan, options), plan.kv_bytes(options.kv, context, batch(options)), context)
}

/// An error if the part of the plan that runs on the CPU, and a session, cannot fit beside what is reserved.
fn check_memory(plan: &Plan, options: &Options, on_cpu: &Plan, free: Option<u64>) -> Result<(), Error> {
    let Some(free) = free else { return Ok(()) };
    let (_, _, context) = needs(plan, options);
    let (weights, cache, _) = needs(on_cpu, options);
    let reserved = options.reserved;
    if weights.saturating_add(cache).saturating_add(reserved) > free {
        return Err(Error::Memory { weights, cache, context, reserved, free });
    }
    Ok(())
}
