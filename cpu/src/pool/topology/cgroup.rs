//! The CPU quota of a Linux process.

use super::Files;

/// The least CPU quota on the way from this process's cgroup to the root, in CPUs; from cgroup v2 or v1, or both (hybrid).
///
/// Formats: cgroups(7), proc_pid_mountinfo(5), and the kernel's Documentation/admin-guide/cgroup-v2.rst.
pub(super) fn quota(files: Files<'_>) -> Option<f64> {
    let groups = files("/proc/self/cgroup")?;
    let mounts = files("/proc/self/mountinfo")?;
    groups.lines().filter_map(|line| least_of_hierarchy(files, &mounts, line)).reduce(f64::min)
}

/// The least quota of one hierarchy; `line` is `hierarchy-ID:controllers:path`, with no controllers for v2.
fn least_of_hierarchy(files: Files<'_>, mounts: &str, line: &str) -> Option<f64> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let v2 = controllers.is_empty();
    if !v2 && !controllers.split(',').any(|controller| controller == "cpu") {
        return None;
    }
    let (root, mount_point) = mounts.lines().find_map(|line| mount_of_cpu(line, v2))?;
    let mut group = below(path, root);
    let mut least: Option<f64> = None;
    loop {
        let directory = format!("{mount_point}{group}");
        let found = if v2 { quota_v2(files, &directory) } else { quota_v1(files, &directory) };
        least = [least, found].into_iter().flatten().reduce(f64::min);
        let Some((parent, _)) = group.rsplit_once('/') else { return least };
        group = parent;
    }
}

/// `path` as seen from `root`, empty or with a slash before it. A mount may show only a part of the hierarchy (a
/// container's), and a group outside of that part has the mount point's limits at least.
fn below<'a>(path: &'a str, root: &str) -> &'a str {
    let group = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("").trim_end_matches('/');
    if group.starts_with('/') { group } else { "" }
}

/// (root, mount point) of a mountinfo line, if it mounts the hierarchy with the cpu controller.
fn mount_of_cpu(line: &str, v2: bool) -> Option<(&str, &str)> {
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
fn quota_v2(files: Files<'_>, directory: &str) -> Option<f64> {
    let text = files(&format!("{directory}/cpu.max"))?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// Quota (-1 for none) and period in µs in two files.
fn quota_v1(files: Files<'_>, directory: &str) -> Option<f64> {
    let quota = files(&format!("{directory}/cpu.cfs_quota_us"))?;
    let period = files(&format!("{directory}/cpu.cfs_period_us"))?;
    ratio(&quota, &period)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}
