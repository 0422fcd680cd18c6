//! Which device runs a model: what was asked for, and what this build and machine have.

use std::sync::Arc;

use llamay_plan::Backend;

use crate::{Error, Options};

/// The device that a model is to run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best GPU that there is; else the CPU.
    #[default]
    Auto,
    /// The CPU alone.
    Cpu,
    /// A device by its name, such as `vulkan` for the best of a backend or `vulkan:1`; software devices too.
    Named(String),
}

impl DeviceChoice {
    /// What an option's value means; `Err` with the values that would be right.
    pub fn parse(value: &str) -> Result<DeviceChoice, String> {
        match value {
            "auto" => Ok(DeviceChoice::Auto),
            "off" | "cpu" => Ok(DeviceChoice::Cpu),
            name => match gpu_backends().into_iter().any(|backend| named(name, backend).is_some()) {
                true => Ok(DeviceChoice::Named(name.to_owned())),
                false => Err(wanted()),
            },
        }
    }
}

/// The values that name a device, in a sentence.
fn wanted() -> String {
    match gpu_backends().as_slice() {
        [] => "auto, off: this build carries no GPU backend".to_owned(),
        names => {
            let names: Vec<_> = names.iter().map(|name| format!("{name}, {name}:NUMBER")).collect();
            format!("auto, off, {}", names.join(", "))
        }
    }
}

/// The number behind the name of a backend, if that is what `name` is: `Some(None)` for the name alone.
fn named(name: &str, backend: &str) -> Option<Option<usize>> {
    match name.strip_prefix(backend)? {
        "" => Some(None),
        rest => rest.strip_prefix(':')?.parse().ok().map(Some),
    }
}

/// GPU backends that this build carries.
pub fn gpu_backends() -> Vec<&'static str> {
    if cfg!(feature = "vulkan") { vec!["vulkan"] } else { Vec::new() }
}

/// The device that the options ask for; `None` for the CPU.
pub(crate) fn of(options: &Options) -> Result<Option<Arc<dyn Backend>>, Error> {
    match &options.backend {
        Some(custom) => Ok(Some(Arc::clone(&custom.0))),
        None => open(&options.device),
    }
}

/// Opens the device; `None` for the CPU.
fn open(choice: &DeviceChoice) -> Result<Option<Arc<dyn Backend>>, Error> {
    match choice {
        DeviceChoice::Cpu => Ok(None),
        // Without a word where there is no GPU: nobody asked for one. `llamay version` says why there is none.
        DeviceChoice::Auto => Ok(best_gpu()),
        DeviceChoice::Named(name) => {
            open_named(name).map(Some).map_err(|why| Error::Device { name: name.clone(), why })
        }
    }
}

#[cfg(feature = "vulkan")]
fn best_gpu() -> Option<Arc<dyn Backend>> {
    llamay_vulkan::VulkanBackend::open_gpu().ok().map(|b| Arc::new(b) as Arc<dyn Backend>)
}

#[cfg(not(feature = "vulkan"))]
fn best_gpu() -> Option<Arc<dyn Backend>> {
    None
}

#[cfg(feature = "vulkan")]
fn open_named(name: &str) -> Result<Arc<dyn Backend>, String> {
    let index = named(name, "vulkan").ok_or_else(wanted)?;
    llamay_vulkan::VulkanBackend::open(index)
        .map(|b| Arc::new(b) as Arc<dyn Backend>)
        .map_err(|e| e.to_string())
}

#[cfg(not(feature = "vulkan"))]
fn open_named(_: &str) -> Result<Arc<dyn Backend>, String> {
    Err(wanted())
}

/// A device, for a listing.
#[derive(Clone, Debug)]
pub struct Device {
    /// What selects it, such as `vulkan:0`.
    pub name: String,
    /// What it calls itself.
    pub description: String,
    /// `discrete`, `integrated`, `virtual`, `software`, `other`.
    pub kind: &'static str,
    /// Its driver.
    pub driver: String,
    /// Bytes of its own memory.
    pub memory: u64,
    /// Bytes that can still be had, where the driver says so.
    pub free: Option<u64>,
    /// Lanes of a subgroup.
    pub subgroup: u32,
    /// What matters to the kernels, and whether it has it.
    pub features: Vec<(&'static str, bool)>,
    /// Whether it computes as it should, or what is wrong.
    pub self_test: Result<(), String>,
}

/// The devices of each GPU backend that this build carries, or why there are none.
#[cfg(feature = "vulkan")]
pub fn devices() -> Vec<(&'static str, Result<Vec<Device>, String>)> {
    let device = |d: llamay_vulkan::DeviceInfo| Device {
        name: format!("vulkan:{}", d.index),
        description: d.name,
        kind: d.kind.name(),
        driver: format!("{}, Vulkan {}", d.driver, d.api),
        memory: d.memory,
        free: d.budget,
        subgroup: d.subgroup,
        features: d.features,
        self_test: d.self_test,
    };
    let found = llamay_vulkan::devices().map_err(|e| e.to_string());
    vec![("vulkan", found.map(|devices| devices.into_iter().map(device).collect()))]
}

/// The devices of each GPU backend that this build carries: none.
#[cfg(not(feature = "vulkan"))]
pub fn devices() -> Vec<(&'static str, Result<Vec<Device>, String>)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_its_backend_and_its_number() {
        assert_eq!(named("vulkan", "vulkan"), Some(None));
        assert_eq!(named("vulkan:3", "vulkan"), Some(Some(3)));
        for odd in ["vulkan:", "vulkan:x", "vulkans", "cuda:0", ""] {
            assert_eq!(named(odd, "vulkan"), None, "{odd}");
        }
        assert_eq!(DeviceChoice::parse("auto"), Ok(DeviceChoice::Auto));
        assert_eq!(DeviceChoice::parse("off"), Ok(DeviceChoice::Cpu));
        assert!(DeviceChoice::parse("cuda").unwrap_err().starts_with("auto, off"));
    }
}
