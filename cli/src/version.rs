//! `llamay version`: what this build can do on this machine.

use llamay_cpu::CpuBackend;
use llamay_cpu::pool::Topology;
use llamay_engine::quantize::Recipe;
use llamay_engine::{Device, Isa, Options, gpu_backends};
use llamay_formats::Format;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::{devices, output};

const AFTER_HELP: &str = "\
Example:
  llamay version --json";

/// Show the version, the machine's kernels, backends, formats and architectures
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Print one object
    #[arg(long)]
    json: bool,
}

/// GPU backends that the design has.
const GPUS: [&str; 3] = ["cuda", "vulkan", "metal"];
const NOT_COMPILED_IN: &str = "not compiled in";

/// What a GPU backend finds on this machine: devices, or why there are none.
type Gpu = (&'static str, Result<Vec<Device>, String>);

/// Each GPU backend, whether this build carries it or not.
fn gpus() -> Vec<Gpu> {
    let mut found = llamay_engine::devices();
    let of = |name: &'static str| {
        let at = found.iter().position(|(n, _)| *n == name);
        at.map_or_else(|| (name, Err(NOT_COMPILED_IN.to_owned())), |at| found.swap_remove(at))
    };
    GPUS.map(of).into()
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let options = Options::from_env()?;
    // Kernels are chosen without regard to the threads, so none are started.
    let cpu = CpuBackend::new(options.isa, 1);
    let tests = self_tests(options.isa);
    let topology = Topology::of_this_process();
    let threads = options.threads.unwrap_or_else(|| topology.threads());
    let gpus = gpus();
    if args.json {
        output::print_json(&as_json(&cpu, &tests, &topology, threads, &gpus))
    } else {
        output::print(&as_text(&cpu, &tests, &topology, threads, &gpus))
    }
}

/// The triple's parts that matter, such as `x86_64-linux-gnu`.
fn target() -> String {
    let env = if cfg!(target_env = "musl") {
        "-musl"
    } else if cfg!(target_env = "gnu") {
        "-gnu"
    } else if cfg!(target_env = "msvc") {
        "-msvc"
    } else {
        ""
    };
    format!("{}-{}{env}", std::env::consts::ARCH, std::env::consts::OS)
}

fn as_json(cpu: &CpuBackend, tests: &SelfTests, topology: &Topology, threads: usize, gpus: &[Gpu]) -> Value {
    let isa_names = |isas: &[Isa]| isas.iter().map(|i| i.name()).collect::<Vec<_>>();
    let formats = Format::ALL.iter().map(|f| {
        json!({ "name": f.name(), "decode": true, "quantize": Recipe::makes(*f), "kernels": cpu.isa_for(*f).name() })
    });
    let architectures =
        llamay_model::ARCHITECTURES.iter().map(|a| json!({ "name": a.name, "models": a.models }));
    let gpus: Vec<Value> = gpus
        .iter()
        .map(|(name, found)| match found {
            Ok(devices) => json!({
                "name": name,
                "available": devices.iter().any(|d| d.self_test.is_ok()),
                "devices": devices.iter().map(devices::as_json).collect::<Vec<_>>(),
            }),
            Err(why) => json!({ "name": name, "available": false, "reason": why }),
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "target": target(),
        "features": gpu_backends(),
        "cpu": {
            "isa": cpu.isa().name(),
            "isas": isa_names(&Isa::available()),
            "isas_built": isa_names(Isa::BUILT),
            "threads": threads,
            "threads_why": topology.to_string(),
            "cpus": topology.cpus,
            "cores": topology.cores,
            "fast_cores": topology.fast_cores,
            "quota": topology.quota,
            "self_test": tests.iter().map(|(isa, outcome)| json!({
                "isa": isa.name(),
                "passed": outcome.is_ok(),
                "fault": outcome.as_ref().err(),
            })).collect::<Vec<_>>(),
        },
        "gpus": gpus,
        "formats": formats.collect::<Vec<_>>(),
        "architectures": architectures.collect::<Vec<_>>(),
    })
}

fn as_text(cpu: &CpuBackend, tests: &SelfTests, topology: &Topology, threads: usize, gpus: &[Gpu]) -> String {
    let names = |isas: &[Isa]| isas.iter().map(|i| i.name()).collect::<Vec<_>>().join(", ");
    let mut rows = vec![
        vec!["target".to_owned(), target()],
        vec![
            "features".to_owned(),
            if gpu_backends().is_empty() { "none".to_owned() } else { gpu_backends().join(", ") },
        ],
        vec!["cpu".to_owned(), format!("{} kernels, of {}", cpu.isa().name(), names(&Isa::available()))],
        vec!["self-test".to_owned(), self_tests_text(tests)],
        vec!["threads".to_owned(), threads_text(topology, threads)],
    ];
    rows.extend(gpus.iter().map(|(name, found)| vec![(*name).to_owned(), gpu_text(found)]));
    let models = |a: &llamay_model::Architecture| format!("{} ({})", a.name, a.models);
    let architectures: Vec<String> = llamay_model::ARCHITECTURES.iter().map(models).collect();
    rows.push(vec!["architectures".to_owned(), architectures.join(", ")]);

    let mut formats = vec![["format", "kernels", "quantize"].map(str::to_owned).to_vec()];
    formats.extend(Format::ALL.iter().map(|f| {
        let quantize = if Recipe::makes(*f) { "yes" } else { "no" };
        vec![f.name().to_owned(), cpu.isa_for(*f).name().to_owned(), quantize.to_owned()]
    }));
    format!(
        "llamay {}\n{}\n{}",
        env!("CARGO_PKG_VERSION"),
        output::table(&rows, &[]),
        output::table(&formats, &[])
    )
}

/// The number of threads and where it comes from.
fn threads_text(topology: &Topology, threads: usize) -> String {
    if threads == topology.threads() {
        topology.to_string()
    } else {
        format!("{threads} (LLAMAY_THREADS; by default {topology})")
    }
}

/// A GPU backend's devices in a line, or why there are none.
fn gpu_text(found: &Result<Vec<Device>, String>) -> String {
    let devices = match found {
        Ok(devices) => devices,
        Err(why) => return why.clone(),
    };
    let text = |d: &Device| match &d.self_test {
        Ok(()) => format!("{} ({}, {}, self-test passed)", d.name, d.description, d.kind),
        Err(why) => format!("{} ({}, {}) is not used: {why}", d.name, d.description, d.kind),
    };
    if devices.is_empty() {
        "no device".to_owned()
    } else {
        devices.iter().map(text).collect::<Vec<_>>().join("; ")
    }
}

/// Kernel sets, each with what its test found.
type SelfTests = Vec<(Isa, Result<(), String>)>;

/// Whether each kernel set up to `cap` gives the reference's bits; not the portable one, which is the reference. A set
/// beyond the cap may be there because its instructions trap.
fn self_tests(cap: Option<Isa>) -> SelfTests {
    let tested = |isa: &Isa| *isa != Isa::Portable && cap.is_none_or(|cap| *isa <= cap);
    Isa::available().into_iter().filter(tested).map(|isa| (isa, isa.self_test())).collect()
}

fn self_tests_text(tests: &SelfTests) -> String {
    let outcomes = tests.iter().map(|(isa, outcome)| match outcome {
        Ok(()) => format!("{} passed", isa.name()),
        Err(what) => format!("{} FAILED and is not used ({what})", isa.name()),
    });
    let text = outcomes.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        "none: only the portable kernels, which are the reference, are used".to_owned()
    } else {
        text
    }
}
