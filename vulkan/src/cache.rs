//! Compiled kernels, kept from one start to the next: a file for each device and driver in the user's cache folder.

use std::path::PathBuf;

use ash::vk;

use crate::driver::Physical;

/// The file; `None` where the system has no such folder.
fn file(physical: &Physical) -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = var("LLAMAY_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("llamay")))
        .or_else(|| var("LOCALAPPDATA").map(|d| d.join("llamay")))
        .or_else(|| var("HOME").map(|d| d.join(".cache/llamay")))?;
    let key: String = physical.cache_key.iter().map(|b| format!("{b:02x}")).collect();
    Some(base.join("vulkan").join(format!("pipelines-{key}.bin")))
}

/// What was kept, or an empty cache. The driver checks what it is given, and a cache that cannot be made is none.
pub(crate) fn load(device: &ash::Device, physical: &Physical) -> vk::PipelineCache {
    let kept = file(physical).and_then(|f| std::fs::read(f).ok()).unwrap_or_default();
    let make = |data: &[u8]| {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        // SAFETY: the device is alive, and the data live until the call returns.
        unsafe { device.create_pipeline_cache(&info, None) }
    };
    make(&kept).or_else(|_| make(&[])).unwrap_or_default()
}

/// Writes the cache beside its file and moves it there, so that two processes never read half of one.
pub(crate) fn store(device: &ash::Device, physical: &Physical, cache: vk::PipelineCache) {
    let Some(file) = file(physical).filter(|_| cache != vk::PipelineCache::null()) else { return };
    // SAFETY: the cache is the device's.
    let Ok(data) = (unsafe { device.get_pipeline_cache_data(cache) }) else { return };
    let part = file.with_extension(format!("part{}", std::process::id()));
    let written = file
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&part, data))
        .and_then(|()| std::fs::rename(&part, &file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
}
