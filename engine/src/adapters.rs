//! LoRA adapters of an opened model: where they come from, and their scales.

use std::fmt;
use std::path::PathBuf;

use llamay_gguf::Gguf;
use llamay_model::lora::{Adapter, Applied, apply, is_adapter};
use llamay_plan::{Plan, StepChange};

use crate::{Error, Model};

/// An adapter that [`Options`](crate::Options) ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// The GGUF file.
    pub path: PathBuf,
    /// The factor of what it adds: 1 for the adapter as it was trained, 0 to load it and leave it off.
    pub scale: f32,
}

/// An adapter that was opened, or made in memory.
pub struct AdapterSource {
    /// What messages call it.
    pub name: String,
    /// Its file.
    pub gguf: Gguf,
    /// As [`AdapterFile::scale`].
    pub scale: f32,
}

impl AdapterSource {
    /// Opens the adapters that the options ask for.
    ///
    /// # Errors
    /// A file that is no valid GGUF.
    pub fn open_all(files: &[AdapterFile]) -> Result<Vec<AdapterSource>, Error> {
        let open = |file: &AdapterFile| {
            let name = file.path.display().to_string();
            Ok(AdapterSource { name, gguf: Gguf::open(&file.path)?, scale: file.scale })
        };
        files.iter().map(open).collect()
    }

    /// Its metadata and table of tensors.
    ///
    /// # Errors
    /// A file that is no LoRA adapter.
    pub(crate) fn read(&self) -> Result<Adapter, Error> {
        Adapter::read(&self.gguf).map_err(|e| Error::adapter(&self.name, e))
    }
}

/// An adapter of a model, as it is at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterInfo {
    /// Its file.
    pub name: String,
    /// The factor of what it adds.
    pub scale: f32,
    /// The least and the greatest rank of its matrices.
    pub ranks: (usize, usize),
    /// How many of the model's tensors it changes.
    pub n_tensors: usize,
    /// Elements of all of its matrices.
    pub n_params: u64,
}

impl fmt::Display for AdapterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdapterInfo { name, scale, ranks: (least, most), n_tensors, .. } = self;
        let to = if least == most { String::new() } else { format!(" to {most}") };
        write!(f, "adapter {name}: rank {least}{to}, {n_tensors} tensors, scale {scale}")
    }
}

/// An adapter and its steps in the plan.
pub(crate) struct Loaded {
    info: AdapterInfo,
    applied: Applied,
}

impl Loaded {
    /// What to tell the executor so that the adapter's scale is `scale`. At 0 its steps do not run, and the model gives the
    /// bits that it gives without the adapter.
    fn changes(&self, scale: f32) -> Vec<(usize, StepChange)> {
        let on = if scale == 0.0 { StepChange::Skip } else { StepChange::Run };
        let steps = self.applied.steps.iter().map(|step| (*step, on));
        let sums = self.applied.sums.iter().filter(|_| scale != 0.0);
        steps.chain(sums.map(|sum| (sum.step, StepChange::Scale(sum.scale(scale))))).collect()
    }
}

/// An error if the file is an adapter, where a model is wanted.
pub(crate) fn refuse(gguf: &Gguf) -> Result<(), Error> {
    if is_adapter(gguf) {
        let why = "the file is an adapter, not a model; give its model, and the adapter with --lora";
        return Err(Error::Unfit(why.to_owned()));
    }
    Ok(())
}

/// Puts adapters into a plan. Also gives warnings.
///
/// # Errors
/// An adapter that does not fit the model.
pub(crate) fn apply_all(
    plan: &mut Plan,
    sources: &[AdapterSource],
) -> Result<(Vec<Loaded>, Vec<String>), Error> {
    let adapters = sources.iter().map(AdapterSource::read).collect::<Result<Vec<_>, _>>()?;
    let scaled: Vec<(&Adapter, f32)> = adapters.iter().zip(sources).map(|(a, s)| (a, s.scale)).collect();
    let applied = apply(plan, &scaled).map_err(|(at, e)| Error::adapter(&sources[at].name, e))?;
    let mut warnings = Vec::new();
    let mut loaded = Vec::with_capacity(sources.len());
    for ((adapter, source), applied) in adapters.iter().zip(sources).zip(applied) {
        if let Some(first) = adapter.unused().first() {
            let (name, n) = (&source.name, adapter.unused().len());
            warnings.push(format!("{name} also has norms ({first}, {n} in all), which are not used"));
        }
        let info = AdapterInfo {
            name: source.name.clone(),
            scale: source.scale,
            ranks: adapter.ranks(),
            n_tensors: adapter.pairs().len(),
            n_params: adapter.n_params(),
        };
        loaded.push(Loaded { info, applied });
    }
    Ok((loaded, warnings))
}

/// What to tell the executor behind loading, where adapters are to be off.
pub(crate) fn initial_changes(adapters: &[Loaded]) -> Vec<(usize, StepChange)> {
    adapters.iter().filter(|a| a.info.scale == 0.0).flat_map(|a| a.changes(0.0)).collect()
}

/// What to tell an executor that takes over, where adapters' scales may not be those of the plan any more.
pub(crate) fn all_changes(adapters: &[Loaded]) -> Vec<(usize, StepChange)> {
    adapters.iter().flat_map(|a| a.changes(a.info.scale)).collect()
}

impl Model {
    /// The adapters, in the order of their application, each with its scale at the moment.
    pub fn adapters(&self) -> Vec<AdapterInfo> {
        self.state().adapters.iter().map(|a| a.info.clone()).collect()
    }

    /// Changes the scale of an adapter, by its place in [`Model::adapters`]; the weights stay where they are. At 0 the
    /// model gives the bits that it gives without the adapter.
    ///
    /// # Errors
    /// If a session holds tokens: their keys and values were made with the scale as it is. A scale that is not finite, and
    /// a number that is no adapter's.
    pub fn set_adapter_scale(&self, index: usize, scale: f32) -> Result<(), Error> {
        let mut state = self.state();
        let n = state.adapters.len();
        if !state.is_empty() {
            return Err(Error::Unfit(
                "an adapter's scale can only be changed while no session holds tokens, since their cache was computed \
                 with the old one"
                    .to_owned(),
            ));
        }
        let Some(adapter) = state.adapters.get_mut(index) else {
            return Err(Error::Unfit(format!("the model has {n} adapters, so there is no number {index}")));
        };
        let finite = adapter.applied.sums.iter().all(|sum| sum.scale(scale).is_finite());
        if !(scale.is_finite() && finite) {
            return Err(Error::Unfit(format!("an adapter's scale of {scale} gives no finite factor")));
        }
        let changes = adapter.changes(scale);
        let before = std::mem::replace(&mut adapter.info.scale, scale);
        let changed = state.executor.change_steps(&changes);
        if changed.is_err() {
            state.adapters[index].info.scale = before;
        }
        Ok(changed?)
    }
}
