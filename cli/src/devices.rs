//! `llamay devices`: what a model can run on.

use llamay_cpu::CpuBackend;
use llamay_engine::plan::Backend;
use llamay_engine::{Device, Options, available_threads};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;

const AFTER_HELP: &str = "\
The first column is what --device takes. Software devices are used only when they are named.

Example:
  llamay run model.gguf --device vulkan:0";

/// List the devices that a model can run on
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Print one object: cpu, gpus (name, devices or reason)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let options = Options::from_env()?;
    let threads = options.threads.unwrap_or_else(available_threads);
    let cpu = CpuBackend::new(options.isa, threads);
    let gpus = llamay_engine::devices();
    if args.json {
        let gpus: Vec<Value> = gpus
            .iter()
            .map(|(name, found)| match found {
                Ok(devices) => {
                    json!({ "name": name, "devices": devices.iter().map(as_json).collect::<Vec<_>>() })
                }
                Err(why) => json!({ "name": name, "reason": why }),
            })
            .collect();
        let free = cpu.free_memory();
        return output::print_json(&json!({
            "cpu": { "isa": cpu.isa().name(), "threads": threads, "free": free },
            "gpus": gpus,
        }));
    }
    output::print(&as_text(&cpu, &gpus))?;
    if gpus.is_empty() {
        output::note("this build carries no GPU backend; `make build-vulkan` builds one that does");
    }
    for (name, why) in gpus.iter().filter_map(|(name, found)| Some((name, found.as_ref().err()?))) {
        output::note(&format!("{name}: {why}"));
    }
    Ok(())
}

/// A device as an object.
pub(crate) fn as_json(device: &Device) -> Value {
    let features = device.features.iter().map(|(name, has)| ((*name).to_owned(), Value::from(*has)));
    json!({
        "name": device.name,
        "description": device.description,
        "kind": device.kind,
        "driver": device.driver,
        "memory": device.memory,
        "free": device.free,
        "subgroup": device.subgroup,
        "features": features.collect::<serde_json::Map<_, _>>(),
        "self_test": { "passed": device.self_test.is_ok(), "fault": device.self_test.as_ref().err() },
    })
}

/// A row for each device, and below what each GPU has.
fn as_text(cpu: &CpuBackend, gpus: &[(&'static str, Result<Vec<Device>, String>)]) -> String {
    let row = |cells: [&str; 7]| cells.map(str::to_owned).to_vec();
    let mut rows = vec![row(["name", "kind", "device", "memory", "free", "subgroup", "self-test"])];
    let free = cpu.free_memory().map_or_else(|| "?".to_owned(), output::bytes);
    rows.push(row(["off", "cpu", &cpu.describe(), "", &free, "", "passed"]));
    let mut details = Vec::new();
    for device in gpus.iter().filter_map(|(_, found)| found.as_ref().ok()).flatten() {
        rows.push(row([
            &device.name,
            device.kind,
            &device.description,
            &output::bytes(device.memory),
            &device.free.map_or_else(|| "?".to_owned(), output::bytes),
            &device.subgroup.to_string(),
            device.self_test.as_ref().map_or_else(String::as_str, |()| "passed"),
        ]));
        let with = |wanted: bool| {
            let some = device.features.iter().filter(|(_, has)| *has == wanted).map(|(name, _)| *name);
            let names = some.collect::<Vec<_>>().join(", ");
            if names.is_empty() { "nothing".to_owned() } else { names }
        };
        details.push(vec![device.name.clone(), "driver".to_owned(), device.driver.clone()]);
        details.push(vec![String::new(), "has".to_owned(), with(true)]);
        details.push(vec![String::new(), "has not".to_owned(), with(false)]);
    }
    let mut text = output::table(&rows, &[]);
    if !details.is_empty() {
        text.push('\n');
        text.push_str(&output::table(&details, &[]));
    }
    text
}
