//! `llamay inspect`: what a file holds, and what it would take to run it.

use std::path::PathBuf;

use llamay_engine::gguf::{Endian, Gguf, Value as GgufValue};
use llamay_engine::lora::{Adapter, LoraError};
use llamay_engine::tokenizer::Kind;
use llamay_engine::{Inspection, Model, Options, Runnable};
use serde_json::{Map, Value, json};

use crate::args::RunOptions;
use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
No weights are loaded. A file that cannot be run is shown as well, with the reason.

Example:
  llamay inspect model.gguf --tensors";

/// Show a file's metadata and formats, and what it would take to run it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The model, a GGUF file
    model: PathBuf,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print one object; with --tensors, the tensors too
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: RunOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let options = args.run.options()?;
    let gguf = Gguf::open(&args.model)?;
    let seen = Model::inspect(&gguf, &options);
    if args.json {
        output::print_json(&as_json(&gguf, &seen, &options, args.tensors))
    } else {
        output::print(&as_text(&gguf, &seen, &options, args.tensors))
    }
}

/// Elements of an array that JSON shows; vocabularies have hundreds of thousands.
const MOST_ELEMENTS: usize = 8;

fn metadata_json(value: GgufValue<'_>) -> Value {
    match value {
        GgufValue::U8(v) => v.into(),
        GgufValue::I8(v) => v.into(),
        GgufValue::U16(v) => v.into(),
        GgufValue::I16(v) => v.into(),
        GgufValue::U32(v) => v.into(),
        GgufValue::I32(v) => v.into(),
        GgufValue::U64(v) => v.into(),
        GgufValue::I64(v) => v.into(),
        GgufValue::F32(v) => v.into(),
        GgufValue::F64(v) => v.into(),
        GgufValue::Bool(v) => v.into(),
        GgufValue::Str(v) => v.into(),
        GgufValue::Array(a) if a.len() > MOST_ELEMENTS => {
            let first: Vec<Value> = a.iter().take(MOST_ELEMENTS).map(metadata_json).collect();
            json!({ "type": a.kind().name(), "length": a.len(), "first": first })
        }
        GgufValue::Array(a) => a.iter().map(metadata_json).collect::<Vec<_>>().into(),
    }
}

fn as_json(gguf: &Gguf, seen: &Inspection, options: &Options, tensors: bool) -> Value {
    let metadata: Map<String, Value> =
        gguf.metadata().iter().map(|(key, value)| (key.to_owned(), metadata_json(value))).collect();
    let formats = seen.formats.iter().map(|f| {
        json!({ "format": f.kind.to_string(), "tensors": f.tensors, "elements": f.elements, "bytes": f.bytes })
    });
    let kv_groups = seen.run.iter().flat_map(|run| &run.kv_groups).map(|g| {
        let bytes = g.bytes_per_token(options.kv);
        json!({ "window": g.window, "layers": g.layers.len(), "bytes_per_token": bytes })
    });
    let run = match &seen.run {
        Ok(run) => json!({
            "runs": true,
            "placement": run.placement,
            "n_layer": run.n_layer,
            "n_embd": run.n_embd,
            "n_vocab": run.n_vocab,
            "n_ctx_train": run.n_ctx_train,
            "context": run.context,
            "n_ctx_max": run.n_ctx_max,
            "experts": run.experts.map(|e| json!({ "n_expert": e.n_expert, "n_used": e.n_used, "idle_params": e.n_idle })),
            "weight_bytes": run.memory.weights,
            "kv_bytes_per_token": run.memory.cache_per_token,
            "kv_bytes": run.memory.cache,
            "kv_groups": kv_groups.collect::<Vec<_>>(),
            "memory_bytes": run.memory.full(),
            "unused_tensors": run.unused,
        }),
        Err(e) => json!({ "runs": false, "reason": e.to_string() }),
    };
    let tokenizer = match &seen.vocabulary {
        Ok(v) => json!({ "usable": true, "kind": kind_name(v.kind), "pre": v.pre, "n_tokens": v.n_tokens }),
        Err(e) => json!({ "usable": false, "reason": e.to_string() }),
    };
    let mut all = json!({
        "files": gguf.paths().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "file_bytes": gguf.file_bytes(),
        "gguf_version": gguf.version(),
        "endian": endian(gguf),
        "architecture": seen.architecture,
        "models": seen.models,
        "n_params": seen.n_params,
        "tensor_bytes": seen.tensor_bytes,
        "n_tensors": gguf.tensors().len(),
        "formats": formats.collect::<Vec<_>>(),
        "tokenizer": tokenizer,
        "chat_template": seen.has_template,
        "adapter": seen.adapter.as_ref().map(adapter_json),
        "run": run,
        "metadata": metadata,
    });
    if tensors {
        let list = gguf.tensors().iter();
        let list = list.map(
            |t| json!({ "name": t.name, "dims": t.dims, "format": t.kind.to_string(), "bytes": t.n_bytes() }),
        );
        all["tensors"] = list.collect();
    }
    all
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Spm => "spm",
        Kind::Bpe => "bpe",
        Kind::Wpm => "wpm",
    }
}

fn endian(gguf: &Gguf) -> &'static str {
    match gguf.endian() {
        Endian::Little => "little",
        Endian::Big => "big",
    }
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn as_text(gguf: &Gguf, seen: &Inspection, options: &Options, tensors: bool) -> String {
    let mut rows = Vec::new();
    for path in gguf.paths() {
        rows.push(row(&["file", &path.display().to_string()]));
    }
    let container = format!(
        "GGUF version {}, {}-endian, {} keys, {} tensors",
        gguf.version(),
        endian(gguf),
        gguf.metadata().len(),
        gguf.tensors().len()
    );
    rows.push(row(&["size", &output::bytes(gguf.file_bytes())]));
    rows.push(row(&["container", &container]));
    let models = seen.models.map(|models| format!(" ({models})")).unwrap_or_default();
    let architecture = seen.architecture.as_deref().unwrap_or("not named");
    rows.push(row(&["architecture", &one_line(&format!("{architecture}{models}"))]));
    rows.push(row(&["parameters", &parameters(seen)]));
    match &seen.adapter {
        Some(adapter) => rows.extend(adapter_rows(adapter)),
        None => rows.extend(model_rows(seen, options)),
    }

    let mut formats = vec![row(&["format", "tensors", "parameters", "bytes"])];
    formats.extend(seen.formats.iter().map(|f| {
        let bytes = output::bytes(f.bytes);
        row(&[&f.kind.to_string(), &f.tensors.to_string(), &output::count(f.elements), &bytes])
    }));
    let metadata: Vec<_> = gguf
        .metadata()
        .iter()
        .map(|(key, value)| row(&[&one_line(key), &one_line(&value.to_string())]))
        .collect();
    let mut text = format!(
        "{}\n{}\nmetadata\n{}",
        output::table(&rows, &[]),
        output::table(&formats, &[1, 2, 3]),
        output::table(&metadata, &[])
    );
    if tensors {
        let mut list = vec![row(&["tensor", "format", "shape", "bytes"])];
        list.extend(gguf.tensors().iter().map(|t| {
            let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
            let bytes = t.n_bytes().map_or("?".to_owned(), output::bytes);
            row(&[&one_line(&t.name), &t.kind.to_string(), &dims.join(" × "), &bytes])
        }));
        text.push('\n');
        text.push_str(&output::table(&list, &[3]));
    }
    text
}

/// All parameters, and those that a token visits where these are not all.
fn parameters(seen: &Inspection) -> String {
    let all = output::count(seen.n_params);
    match seen.run.as_ref().ok().and_then(|run| run.experts) {
        None => all,
        Some(e) => {
            let visited = output::count(seen.n_params.saturating_sub(e.n_idle));
            format!(
                "{all}, of which a token visits {visited}: {} of {} experts a layer",
                e.n_used, e.n_expert
            )
        }
    }
}

/// What only models have.
fn model_rows(seen: &Inspection, options: &Options) -> Vec<Vec<String>> {
    let vocabulary = match &seen.vocabulary {
        Ok(v) => {
            let pre = v.pre.map(|pre| format!(" ({pre})")).unwrap_or_default();
            format!("{}{pre}, {} tokens", kind_name(v.kind), v.n_tokens)
        }
        Err(e) => format!("cannot be used: {e}"),
    };
    let mut rows = vec![
        row(&["tokenizer", &vocabulary]),
        row(&["chat template", if seen.has_template { "yes" } else { "no" }]),
    ];
    match &seen.run {
        Ok(run) => rows.extend(runnable_rows(run, options)),
        Err(e) => rows.push(row(&["runs", &format!("no: {e}")])),
    }
    rows
}

fn adapter_rows(adapter: &Result<Adapter, LoraError>) -> Vec<Vec<String>> {
    let adapter = match adapter {
        Ok(adapter) => adapter,
        Err(e) => return vec![row(&["adapter", &format!("cannot be used: {e}")])],
    };
    let (least, most) = adapter.ranks();
    let rank = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let alpha = adapter.alpha();
    let mut rows = vec![
        row(&[
            "adapter",
            &format!("LoRA for {} models; use it with --lora", one_line(adapter.architecture())),
        ]),
        row(&["rank", &format!("{rank}, alpha {alpha}")]),
        row(&["changes", &format!("{} tensors", adapter.pairs().len())]),
    ];
    if !adapter.unused().is_empty() {
        rows.push(row(&["unused tensors", &one_line(&adapter.unused().join(", "))]));
    }
    rows
}

fn adapter_json(adapter: &Result<Adapter, LoraError>) -> Value {
    match adapter {
        Ok(adapter) => json!({
            "usable": true,
            "architecture": adapter.architecture(),
            "alpha": adapter.alpha(),
            "ranks": [adapter.ranks().0, adapter.ranks().1],
            "changes": adapter.pairs().iter().map(|p| p.tensor.as_str()).collect::<Vec<_>>(),
            "unused_tensors": adapter.unused(),
        }),
        Err(e) => json!({ "usable": false, "reason": e.to_string() }),
    }
}

fn runnable_rows(run: &Runnable, options: &Options) -> Vec<Vec<String>> {
    let memory = format!(
        "{} weights + {} cache = {} at {} positions",
        output::bytes(run.memory.weights),
        output::bytes(run.memory.cache),
        output::bytes(run.memory.full()),
        run.context
    );
    let kept = run.kv_groups.iter().map(|g| {
        let bytes = output::bytes(g.bytes_per_token(options.kv) as u64);
        let (n, s) = (g.layers.len(), if g.layers.len() == 1 { "" } else { "s" });
        let window = g.window.map_or(String::new(), |w| format!(" with a window of {w}"));
        format!("{bytes} in {n} layer{s}{window}")
    });
    let cache = format!("{} a token ({})", kept.collect::<Vec<_>>().join(" + "), options.kv.name());
    let most = run.n_ctx_max.map(|n| format!(", and no more than {n}")).unwrap_or_default();
    let mut rows = vec![
        row(&[
            "shape",
            &format!("{} layers of width {}, vocabulary of {}", run.n_layer, run.n_embd, run.n_vocab),
        ]),
        row(&["context", &format!("{} positions in training{most}", run.n_ctx_train)]),
        row(&["runs", &run.placement]),
        row(&["cache", &cache]),
        row(&["memory", &memory]),
    ];
    if !run.unused.is_empty() {
        rows.push(row(&["unused tensors", &one_line(&run.unused.join(", "))]));
    }
    rows
}

/// Text of a file made safe for a terminal: one line, and no control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
