//! How many threads this process may run: the CPUs of its affinity mask, cut by the cgroup's CPU quota.
//!
//! [`std::thread::available_parallelism`] knows both but rounds the quota down, so that 1.5 CPUs would run one thread and
//! leave a third of what was granted unused. Here the quota is rounded up: the second thread is throttled half of the time,
//! and a pool that waits for no idle worker still gains by it.

use std::fmt::Write;

/// The number of threads worth running, at least 1: CPUs in the affinity mask, at most the CPU quota rounded up.
pub fn available_threads() -> usize {
    Limits::of_this_process().threads()
}

/// [`available_threads`] with its reasons, such as `2 threads (affinity 2 CPUs, cgroup quota 1.5 CPUs)`.
pub fn describe() -> String {
    Limits::of_this_process().to_string()
}

/// What bounds the number of threads.
#[derive(Debug, PartialEq)]
struct Limits {
    /// CPUs this thread may be scheduled on.
    affinity: usize,
    /// CPU time per wall-clock time, if limited.
    quota: Option<f64>,
}

impl Limits {
    fn of_this_process() -> Self {
        Self::read(&|path| std::fs::read_to_string(path).ok())
    }

    /// From the files of a Linux system; elsewhere there are none, and std is asked.
    fn read(file: &dyn Fn(&str) -> Option<String>) -> Self {
        let affinity = affinity(file);
        let affinity =
            affinity.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Self { affinity, quota: quota(file) }
    }

    fn threads(&self) -> usize {
        self.quota.map_or(self.affinity, |quota| self.affinity.min(quota.ceil() as usize)).max(1)
    }
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let (threads, cpus) = (self.threads(), self.affinity);
        write!(f, "{threads} thread{} (affinity {cpus} CPU{}", plural(threads), plural(cpus))?;
        if let Some(quota) = self.quota {
            write!(f, ", cgroup quota {} CPUs", (quota * 100.0).round() / 100.0)?;
        }
        f.write_char(')')
    }
}

/// The number of online CPUs in the calling thread's affinity mask.
fn affinity(file: &dyn Fn(&str) -> Option<String>) -> Option<usize> {
    let status = file("/proc/thread-self/status").or_else(|| file("/proc/self/status"))?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = cpu_list(allowed)?;
    // The mask may name CPUs that the machine does not have.
    let online = file("/sys/devices/system/cpu/online").and_then(|list| cpu_list(&list));
    let n = match online {
        Some(online) => allowed.n_shared(&online),
        None => allowed.0.iter().map(|(first, last)| last - first + 1).sum(),
    };
    (n > 0).then_some(n)
}

/// A list of CPU ranges as the kernel prints it: `0-3,8,10-11`.
struct CpuList(Vec<(usize, usize)>);

fn cpu_list(text: &str) -> Option<CpuList> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < 1 << 20).then_some((first, last))
    };
    text.trim().split(',').map(range).collect::<Option<_>>().map(CpuList)
}

impl CpuList {
    /// How many CPUs are in both lists.
    fn n_shared(&self, other: &Self) -> usize {
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
        pairs.filter(|(first, last)| first <= last).map(|(first, last)| last - first + 1).sum()
    }
}

/// The least CPU quota on the way from this process's cgroup to the root, in CPUs; from cgroup v2 or v1, or both (hybrid).
///
/// Formats: cgroups(7), proc_pid_mountinfo(5), and the kernel's Documentation/admin-guide/cgroup-v2.rst.
fn quota(file: &dyn Fn(&str) -> Option<String>) -> Option<f64> {
    let groups = file("/proc/self/cgroup")?;
    let mounts = file("/proc/self/mountinfo")?;
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        // hierarchy-ID:controllers:path, with no controllers for v2.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let v2 = controllers.is_empty();
        if !v2 && !controllers.split(',').any(|controller| controller == "cpu") {
            continue;
        }
        let Some((root, mount_point)) = mounts.lines().find_map(|line| cgroup_mount(line, v2)) else {
            continue;
        };
        // A mount may show only a part of the hierarchy (a container's).
        let mut group = group.strip_prefix(root.trim_end_matches('/')).unwrap_or("").trim_end_matches('/');
        loop {
            let directory = format!("{mount_point}{group}");
            let found = if v2 { quota_v2(file, &directory) } else { quota_v1(file, &directory) };
            least = [least, found].into_iter().flatten().reduce(f64::min);
            let Some((parent, _)) = group.rsplit_once('/') else { break };
            group = parent;
        }
    }
    least
}

/// (root, mount point) of a mountinfo line, if it mounts the hierarchy with the cpu controller.
fn cgroup_mount(line: &str, v2: bool) -> Option<(&str, &str)> {
    // 32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime … - cgroup cgroup rw,cpu
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    let fits = match source.next()? {
        "cgroup2" => v2,
        "cgroup" => !v2 && source.nth(1)?.split(',').any(|option| option == "cpu"),
        _ => false,
    };
    let mut mount = mount.split(' ').skip(3);
    fits.then_some((mount.next()?, mount.next()?))
}

/// `cpu.max` holds "max 100000" or quota and period in µs.
fn quota_v2(file: &dyn Fn(&str) -> Option<String>, directory: &str) -> Option<f64> {
    let text = file(&format!("{directory}/cpu.max"))?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// Quota (-1 for none) and period in µs in two files.
fn quota_v1(file: &dyn Fn(&str) -> Option<String>, directory: &str) -> Option<f64> {
    let quota = file(&format!("{directory}/cpu.cfs_quota_us"))?;
    let period = file(&format!("{directory}/cpu.cfs_period_us"))?;
    ratio(&quota, &period)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(files: &[(&str, &str)]) -> Limits {
        Limits::read(&|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_string())
        })
    }

    const STATUS: (&str, &str) = ("/proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t0-1,4-127\n");
    const ONLINE: (&str, &str) = ("/sys/devices/system/cpu/online", "0-5\n");
    const V2: (&str, &str) =
        ("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");

    #[test]
    fn affinity_counts_online_cpus() {
        assert_eq!(limits(&[STATUS, ONLINE]), Limits { affinity: 4, quota: None });
        assert_eq!(limits(&[STATUS]).affinity, 126);
        assert_eq!(limits(&[STATUS, ONLINE]).to_string(), "4 threads (affinity 4 CPUs)");
    }

    #[test]
    fn the_least_quota_on_the_way_up_counts_and_rounds_up() {
        let limits = limits(&[
            STATUS,
            ONLINE,
            V2,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "300000 100000\n"),
        ]);
        assert_eq!(limits, Limits { affinity: 4, quota: Some(1.5) });
        assert_eq!(limits.to_string(), "2 threads (affinity 4 CPUs, cgroup quota 1.5 CPUs)");
    }

    #[test]
    fn a_container_sees_its_quota_at_the_mount_point() {
        let mounts = "40 30 0:32 /docker/c1 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";
        let files = |quota| {
            limits(&[
                STATUS,
                ONLINE,
                ("/proc/self/mountinfo", mounts),
                ("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/c1\n0::/y\n"),
                ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", quota),
                ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ])
        };
        assert_eq!(files("20000\n").quota, Some(0.2));
        assert_eq!(files("20000\n").threads(), 1);
        assert_eq!(files("-1\n").quota, None);
    }

    #[test]
    fn nonsense_limits_nothing() {
        for text in ["", "\n", "max", "0 0", "1 0", "-5 100000", "x y z", "99999999999999999999 1"] {
            let files =
                [STATUS, ONLINE, V2, ("/proc/self/cgroup", "0::/\n:\n\n"), ("/sys/fs/cgroup/cpu.max", text)];
            assert_eq!(limits(&files), Limits { affinity: 4, quota: None }, "{text:?}");
        }
        for list in ["", "3-1", "a", "0-99999999999", "1,,2"] {
            let status = format!("Cpus_allowed_list:\t{list}\n");
            assert!(limits(&[("/proc/thread-self/status", &status)]).threads() >= 1);
        }
    }

    #[test]
    fn this_machine_has_a_thread() {
        assert!(available_threads() >= 1);
        assert!(describe().starts_with(&available_threads().to_string()));
    }
}
