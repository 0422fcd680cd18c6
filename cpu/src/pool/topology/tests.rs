//! Machines as their /proc and /sys show them.

use super::*;

/// The files of a machine, by path.
#[derive(Clone)]
struct Machine(Vec<(String, String)>);

impl Machine {
    /// One with these CPUs online, all of which the process may use.
    fn new(online: &str) -> Self {
        let machine = Machine(Vec::new()).file("/sys/devices/system/cpu/online", online);
        machine.affinity("0-1023")
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.0.retain(|(name, _)| name != path);
        self.0.push((path.to_owned(), format!("{text}\n")));
        self
    }

    fn without(mut self, part: &str) -> Self {
        self.0.retain(|(path, _)| !path.contains(part));
        self
    }

    fn affinity(self, list: &str) -> Self {
        self.file("/proc/thread-self/status", &format!("Name:\tx\nCpus_allowed_list:\t{list}"))
    }

    /// A file of each of these CPUs.
    fn each(self, cpus: std::ops::Range<usize>, name: &str, text: impl Fn(usize) -> String) -> Self {
        cpus.fold(self, |machine, cpu| {
            machine.file(&format!("/sys/devices/system/cpu/cpu{cpu}/{name}"), &text(cpu))
        })
    }

    /// A cgroup v2 hierarchy of which this process is in `group`.
    fn v2(self, group: &str) -> Self {
        let machine = self.file("/proc/self/cgroup", &format!("0::{group}"));
        machine.file("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    }

    fn topology(&self) -> Topology {
        Topology::read(&|path| self.0.iter().find(|(name, _)| name == path).map(|(_, text)| text.clone()))
    }

    #[track_caller]
    fn says(&self, text: &str) {
        assert_eq!(self.topology().to_string(), text);
    }
}

/// 64 cores with two siblings each: CPU c and CPU c + 64.
fn smt_server() -> Machine {
    let siblings = |cpu: usize| format!("{},{}", cpu % 64, cpu % 64 + 64);
    Machine::new("0-127").each(0..128, "topology/core_cpus_list", siblings)
}

/// 6 performance cores with siblings side by side, 8 efficiency cores, 2 of low power.
fn hybrid_laptop() -> Machine {
    let siblings = |cpu: usize| if cpu < 12 { format!("{}-{}", cpu & !1, cpu | 1) } else { cpu.to_string() };
    Machine::new("0-21")
        .each(0..22, "topology/core_cpus_list", siblings)
        .each(0..22, "cpufreq/cpuinfo_max_freq", |cpu| {
            (if cpu < 12 { 4_800_000 } else { 3_800_000 }).to_string()
        })
        .file("/sys/devices/cpu_core/cpus", "0-11")
        .file("/sys/devices/cpu_atom/cpus", "12-19")
        .file("/sys/devices/cpu_lowpower/cpus", "20-21")
}

/// A telephone: one large, three middle and four small cores.
fn big_little() -> Machine {
    Machine::new("0-7")
        .each(0..8, "cpu_capacity", |cpu| [290, 290, 290, 290, 810, 810, 810, 1024][cpu].to_string())
}

#[test]
fn affinity_counts_online_cpus() {
    let machine = Machine::new("0-5").affinity("0-1,4-127");
    machine.says("4 threads (affinity 4 CPUs)");
    assert_eq!(machine.without("online").topology().cpus, 126);
    // A switched-off CPU leaves a hole in the list.
    Machine::new("0,2-3").says("3 threads (affinity 3 CPUs)");
    Machine::new("0-5").affinity("3").says("1 thread (affinity 1 CPU)");
}

#[test]
fn smt_siblings_count_once() {
    smt_server().says("64 threads (affinity 128 CPUs, 64 cores)");
    smt_server().affinity("0-7").says("8 threads (affinity 8 CPUs)");
    smt_server().affinity("0-3,64-67").says("4 threads (affinity 8 CPUs, 4 cores)");
    smt_server().affinity("5,69").says("1 thread (affinity 2 CPUs, 1 core)");
    // The second siblings are off.
    smt_server().file("/sys/devices/system/cpu/online", "0-63").says("64 threads (affinity 64 CPUs)");
    // An older kernel's name of the file.
    let old = Machine::new("0-3")
        .each(0..4, "topology/thread_siblings_list", |cpu| format!("{}-{}", cpu & 2, cpu | 1));
    old.says("2 threads (affinity 4 CPUs, 2 cores)");
}

#[test]
fn efficiency_cores_do_not_count_beside_fast_ones() {
    hybrid_laptop().says("6 threads (affinity 22 CPUs, 16 cores, 6 of them fast)");
    hybrid_laptop().affinity("12-21").says("10 threads (affinity 10 CPUs)");
    hybrid_laptop().affinity("0-3,12-21").says("2 threads (affinity 14 CPUs, 12 cores, 2 of them fast)");
    big_little().says("4 threads (affinity 8 CPUs, 8 cores, 4 of them fast)");
    big_little().affinity("0-3").says("4 threads (affinity 4 CPUs)");
    // Of an older kernel only the frequencies are known.
    let frequency = |cpu: usize| [1_000_000, 1_000_000, 2_600_000, 2_800_000][cpu].to_string();
    let old = Machine::new("0-3").each(0..4, "cpufreq/cpuinfo_max_freq", frequency);
    old.says("2 threads (affinity 4 CPUs, 4 cores, 2 of them fast)");
}

#[test]
fn cores_that_turbo_less_far_are_no_efficiency_cores() {
    let frequency = |cpu: usize| [5_200_000, 5_200_000, 5_000_000, 3_700_000][cpu].to_string();
    Machine::new("0-3").each(0..4, "cpufreq/cpuinfo_max_freq", frequency).says("4 threads (affinity 4 CPUs)");
}

#[test]
fn the_least_quota_on_the_way_up_counts_and_rounds_up() {
    let machine = Machine::new("0-3")
        .v2("/a/b")
        .file("/sys/fs/cgroup/a/b/cpu.max", "max 100000")
        .file("/sys/fs/cgroup/a/cpu.max", "150000 100000")
        .file("/sys/fs/cgroup/cpu.max", "300000 100000");
    machine.says("2 threads (affinity 4 CPUs, cgroup quota 1.5 CPUs)");
    let half = machine.file("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
    half.says("1 thread (affinity 4 CPUs, cgroup quota 0.5 CPUs)");
}

#[test]
fn quota_and_cores_bound_each_other() {
    let of = |quota| smt_server().v2("/").file("/sys/fs/cgroup/cpu.max", quota).topology().threads();
    assert_eq!(of("1600000 100000"), 16);
    assert_eq!(of("10000000 100000"), 64);
}

#[test]
fn a_container_sees_its_quota_at_the_mount_point() {
    let mounts = "40 30 0:32 /docker/c1 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct";
    let machine = |quota, group| {
        Machine::new("0-3")
            .file("/proc/self/mountinfo", mounts)
            .file("/proc/self/cgroup", &format!("5:memory:/x\n4:cpu,cpuacct:{group}\n0::/y"))
            .file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", quota)
            .file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
            .topology()
    };
    assert_eq!(machine("20000", "/docker/c1").quota, Some(0.2));
    assert_eq!(machine("20000", "/docker/c1/inner").quota, Some(0.2));
    // Beside what is mounted, though its name begins the same.
    assert_eq!(machine("20000", "/docker/c10").quota, Some(0.2));
    assert_eq!(machine("-1", "/docker/c1").quota, None);
}

#[test]
fn nonsense_limits_nothing() {
    for text in ["", "max", "0 0", "1 0", "-5 100000", "x y z", "99999999999999999999 1"] {
        let machine = Machine::new("0-3").v2("/").file("/sys/fs/cgroup/cpu.max", text);
        assert_eq!(machine.topology().quota, None, "{text:?}");
    }
    assert_eq!(Machine::new("0-3").file("/proc/self/cgroup", "0::/\n:\n\n").topology().quota, None);
    for list in ["", "3-1", "a", "0-99999999999", "1,,2"] {
        assert!(Machine::new("0-3").affinity(list).topology().threads() >= 1, "{list:?}");
        let machine = smt_server().file("/sys/devices/system/cpu/cpu0/topology/core_cpus_list", list);
        assert!((64..=65).contains(&machine.topology().cores), "{list:?}");
        let machine = big_little().file("/sys/devices/cpu_core/cpus", list);
        assert_eq!(machine.topology().fast_cores, 4, "{list:?}");
    }
    let machine = big_little().file("/sys/devices/system/cpu/cpu3/cpu_capacity", "many");
    assert_eq!(machine.topology().fast_cores, 8, "what is not known of every core says nothing");
}

#[test]
fn without_files_the_machine_has_a_thread() {
    let nothing = Machine(Vec::new()).topology();
    assert!(nothing.threads() >= 1 && nothing.cores <= nothing.cpus && nothing.fast_cores <= nothing.cores);
}

#[test]
fn this_machine_has_a_thread() {
    let topology = Topology::of_this_process();
    assert!(
        topology.threads() >= 1 && topology.fast_cores <= topology.cores && topology.cores <= topology.cpus
    );
}
