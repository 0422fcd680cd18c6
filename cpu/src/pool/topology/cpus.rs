//! The CPUs that a Linux process may use, and what they have in common.

use super::Files;

/// Where the kernel describes CPUs (Documentation/ABI/testing/sysfs-devices-system-cpu).
const CPUS: &str = "/sys/devices/system/cpu";

/// The online CPUs in the calling thread's affinity mask, in order; never none.
pub(super) fn allowed(files: Files<'_>) -> Option<Vec<usize>> {
    let status = files("/proc/thread-self/status").or_else(|| files("/proc/self/status"))?;
    let mask = parse_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)?;
    // The mask may name CPUs that the machine does not have, or that are switched off.
    let online = files(&format!("{CPUS}/online")).and_then(|list| parse_list(&list));
    let mut allowed: Vec<usize> = mask.into_iter().flatten().collect();
    if let Some(online) = online {
        allowed.retain(|cpu| online.iter().any(|range| range.contains(cpu)));
    }
    (!allowed.is_empty()).then_some(allowed)
}

/// (physical cores, those of them that are fast) of some CPUs.
pub(super) fn cores(files: Files<'_>, allowed: &[usize]) -> (usize, usize) {
    let first_siblings = one_per_core(files, allowed);
    (first_siblings.len(), n_fast(files, &first_siblings))
}

/// One CPU of each core. A CPU of which nothing is known is a core.
fn one_per_core(files: Files<'_>, allowed: &[usize]) -> Vec<usize> {
    let mut firsts = Vec::new();
    let mut covered: Vec<Range> = Vec::new();
    for &cpu in allowed {
        if covered.iter().any(|range| range.contains(&cpu)) {
            continue;
        }
        firsts.push(cpu);
        // The name before Linux 5.3 comes second.
        let siblings = ["core_cpus_list", "thread_siblings_list"]
            .iter()
            .find_map(|name| files(&format!("{CPUS}/cpu{cpu}/topology/{name}")));
        covered.extend(siblings.and_then(|list| parse_list(&list)).unwrap_or_default());
    }
    firsts
}

/// How many of these cores are not efficiency cores beside faster ones.
///
/// Intel's kernel drivers list the kinds of core of a hybrid CPU. Its efficiency cores never count: their vector units are
/// 128 bits wide, which the kernel's own figure for their capacity does not show. Elsewhere a core counts if its capacity,
/// or where the kernel has none its highest frequency, is at least half of the best's: that leaves out the small cores of
/// Arm's and keeps the middle ones, and keeps cores that only turbo less far.
fn n_fast(files: Files<'_>, cores: &[usize]) -> usize {
    if let Some(performance) = files("/sys/devices/cpu_core/cpus").and_then(|list| parse_list(&list)) {
        let n = cores.iter().filter(|cpu| performance.iter().any(|range| range.contains(cpu))).count();
        return if n == 0 { cores.len() } else { n };
    }
    let speeds = |file: &str| -> Option<Vec<u64>> {
        cores.iter().map(|cpu| files(&format!("{CPUS}/cpu{cpu}/{file}"))?.trim().parse().ok()).collect()
    };
    let Some(speeds) = speeds("cpu_capacity").or_else(|| speeds("cpufreq/cpuinfo_max_freq")) else {
        return cores.len();
    };
    let best = speeds.iter().max().copied().unwrap_or(0);
    speeds.iter().filter(|speed| **speed >= best.div_ceil(2)).count()
}

type Range = std::ops::RangeInclusive<usize>;

/// A list of CPU ranges as the kernel prints it: `0-3,8,10-11`.
fn parse_list(text: &str) -> Option<Vec<Range>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more than 8192 CPUs.
        (first <= last && last < 1 << 16).then_some(first..=last)
    };
    text.trim().split(',').map(range).collect()
}
