//! How many threads this process should run, and why.
//!
//! The number is that of the fast physical cores that the process may use, cut by its CPU quota:
//!
//! - **Affinity**: only CPUs in the mask, which also holds what a cpuset allows, and only those that are online.
//! - **SMT siblings** count once. They share the units that multiply and the caches, which the kernels keep busy from one
//!   thread, and a sibling that spins between two steps takes issue slots from the one that works.
//! - **Efficiency cores** do not count beside fast ones ([`cpus`] says which are). Threads are not pinned, so the system
//!   puts as many threads as there are fast cores on these; and a chunk on a core of less than half the speed is computed
//!   again by whoever waits for it.
//! - **A quota is rounded up**. [`std::thread::available_parallelism`] rounds down, so that 1.5 CPUs would run one thread and
//!   leave a third of what was granted unused. The second thread is throttled half of the time, and a pool that waits for
//!   no idle worker still gains by it. Half a CPU runs one thread.
//!
//! Linux tells in /proc and /sys, which all functions here read through a [`Files`], so that tests can show them any machine.
//! Elsewhere the system's own calls give cores (macOS, Windows) or std gives CPUs.

mod cgroup;
mod cpus;
#[cfg(test)]
mod tests;

use std::fmt;

/// The text of a file by its absolute path, if it can be read.
type Files<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The number of threads worth running, at least 1: see [`Topology::threads`].
pub fn available_threads() -> usize {
    Topology::of_this_process().threads()
}

/// What bounds the number of threads. Its text is the number with the reasons, such as
/// `2 threads (affinity 8 CPUs, 4 cores, cgroup quota 1.5 CPUs)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// CPUs that this thread may be scheduled on.
    pub cpus: usize,
    /// Physical cores of these CPUs.
    pub cores: usize,
    /// Those of the cores that are not efficiency cores beside faster ones.
    pub fast_cores: usize,
    /// CPU time per wall-clock time, if limited.
    pub quota: Option<f64>,
}

impl Topology {
    /// Asks the system anew: masks and quotas change while processes run.
    pub fn of_this_process() -> Self {
        Self::read(&|path| std::fs::read_to_string(path).ok())
    }

    /// From the files of a Linux system; where there are none, from what else can be asked.
    fn read(files: Files<'_>) -> Self {
        let quota = cgroup::quota(files);
        if let Some(allowed) = cpus::allowed(files) {
            let (cores, fast_cores) = cpus::cores(files, &allowed);
            return Self { cpus: allowed.len(), cores, fast_cores, quota };
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (cores, fast_cores) = native_cores().unwrap_or((cpus, cpus));
        Self { cpus, cores: cores.clamp(1, cpus), fast_cores: fast_cores.clamp(1, cpus), quota }
    }

    /// The number of threads worth running, at least 1: one for each fast core, at most the quota rounded up.
    pub fn threads(&self) -> usize {
        self.quota.map_or(self.fast_cores, |quota| self.fast_cores.min(quota.ceil() as usize)).max(1)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, of: &str| format!("{n} {of}{}", if n == 1 { "" } else { "s" });
        write!(f, "{} (affinity {}", count(self.threads(), "thread"), count(self.cpus, "CPU"))?;
        if self.cores != self.cpus || self.fast_cores != self.cores {
            write!(f, ", {}", count(self.cores, "core"))?;
        }
        if self.fast_cores != self.cores {
            write!(f, ", {} of them fast", self.fast_cores)?;
        }
        if let Some(quota) = self.quota {
            write!(f, ", cgroup quota {} CPUs", (quota * 100.0).round() / 100.0)?;
        }
        write!(f, ")")
    }
}

/// (cores, fast cores): all of the physical ones, and those of the first performance level.
#[cfg(target_vendor = "apple")]
fn native_cores() -> Option<(usize, usize)> {
    let count = |name: &std::ffi::CStr| {
        let (mut value, mut size) = (0i32, size_of::<i32>());
        // SAFETY: the name is a string with an end; `size` bytes may be written to `value`; nothing is set.
        let failed = unsafe {
            libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &raw mut size, std::ptr::null_mut(), 0)
        };
        (failed == 0).then(|| usize::try_from(value).ok()).flatten()
    };
    let cores = count(c"hw.physicalcpu")?;
    Some((cores, count(c"hw.perflevel0.physicalcpu").unwrap_or(cores)))
}

/// (cores, fast cores): Windows does not say which are fast without calls of its own, so all count.
#[cfg(windows)]
fn native_cores() -> Option<(usize, usize)> {
    let cores = num_cpus::get_physical();
    Some((cores, cores))
}

#[cfg(not(any(target_vendor = "apple", windows)))]
fn native_cores() -> Option<(usize, usize)> {
    None
}
