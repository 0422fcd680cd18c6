#!/usr/bin/env python3
"""Disturb llamay while it runs, and see that it says what it says undisturbed.

    faults.py --llamay target/release/llamay [--model smollm2 | --model FILE] [--only WORD]

Answers are greedy and exact, so an answer under a fault has to be that of the quiet run, byte for byte. Each run has a
limit that only a hang can reach. Idle chats are measured: the share of one CPU that the process uses, from the times
that the kernel keeps for its threads. What this machine cannot do is skipped with a line. Exit code 1 if anything
differs.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

FETCH = Path(__file__).resolve().parent.parent / "fetch.py"
# Some 100 tokens, so that there is a prompt to disturb, and then an answer.
PROMPT = "The pool hands out rows in chunks, and nobody waits for a thread that has not started. " * 5 + "So"
N_TOKENS = 24
# Seconds that a run may take, on a machine that others use too.
LIMIT = 240
# An idle process may use this share of one CPU, measured over so many seconds.
IDLE_SHARE, IDLE_SECONDS = 0.01, 3
# Longer stops than a scheduler's slice, and shorter; in seconds.
STOPS = (0.001, 0.03)


class Skip(Exception):
    """Why a fault cannot be made on this machine."""


class Fault(Exception):
    """What went wrong, in a sentence."""


class Runner:
    """The binary with its model."""

    def __init__(self, binary, model):
        self.binary, self.model = str(binary), str(model)
        self.expected = None

    def version(self, prefix=(), **popen):
        command = [*prefix, self.binary, "version", "--json"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, **popen)
        except subprocess.TimeoutExpired:
            raise Fault(f"version hangs: no end after {LIMIT} s") from None
        if done.returncode != 0:
            raise Fault(f"version exited {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
        return json.loads(done.stdout)

    def start(self, args=(), env=None, preexec_fn=None, n_tokens=N_TOKENS, prefix=()):
        command = [*prefix, self.binary, "run", self.model, PROMPT, "--raw", "--temp", "0", "-n", str(n_tokens), *args]
        environment = {**os.environ, **(env or {})}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            preexec_fn=preexec_fn,
        )

    def finish(self, process):
        """Standard output, within the limit."""
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Fault(f"hangs: no end after {LIMIT} s") from None
        if process.returncode != 0:
            raise Fault(f"exited {process.returncode}: {err.decode(errors='replace')[-300:]}")
        return out

    def check(self, **how):
        """Runs under a fault that `start` can make."""
        self.compare(self.finish(self.start(**how)))

    def compare(self, out):
        if out != self.expected:
            raise Fault(f"says {out!r} and not {self.expected!r}")


def cpus(n):
    """The first `n` CPUs that this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        raise Skip("no affinity masks here")
    allowed = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, allowed[:n])


def one_cpu(runner):
    pin = cpus(1)
    threads = runner.version(preexec_fn=pin)["cpu"]["threads"]
    if threads != 1:
        raise Fault(f"would run {threads} threads on one CPU")
    runner.check(preexec_fn=pin)
    return "1 thread by default"


def two_threads_on_one_cpu(runner):
    runner.check(args=["-t", "2"], preexec_fn=cpus(1))


def many_threads(runner):
    runner.check(args=["-t", "64"], preexec_fn=cpus(2))


def bursts(seed):
    """Stops and continues a process until it ends; gives how often."""

    def disturb(process):
        lengths, n = random.Random(seed), 0
        deadline = time.monotonic() + LIMIT
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGSTOP)
            time.sleep(lengths.uniform(*STOPS))
            process.send_signal(signal.SIGCONT)
            time.sleep(lengths.uniform(*STOPS))
            n += 1
        return n

    return disturb


def stopped_and_continued(runner):
    # The output is short enough for the pipe, so nobody has to read meanwhile.
    process = runner.start(args=["-t", "2"])
    n = bursts(1)(process)
    runner.compare(runner.finish(process))
    if n < 2:
        raise Fault("ended before it was stopped twice")
    return f"{n} stops"


@contextmanager
def busy_core():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as hog:
        try:
            yield
        finally:
            hog.kill()


def beside_a_busy_core(runner):
    with busy_core():
        runner.check(args=["-t", "2"])


def each_isa(runner):
    names = runner.version()["cpu"]["isas"]
    for name in names:
        runner.check(env={"LLAMAY_ISA": name})
    return ", ".join(names)


def cpu_cgroup():
    """(directory, is v2) of the mounted hierarchy with the cpu controller."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        point, kind = Path(mount.split(" ")[4]), source.split(" ")
        if kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            return point, False
        if kind[0] == "cgroup2" and "cpu" in (point / "cgroup.subtree_control").read_text().split():
            return point, True
    raise Skip("no cgroup hierarchy controls the CPU")


@contextmanager
def quota_group(cpus_of_quota):
    """A cgroup of this quota; gives the function by which a child enters it."""
    try:
        root, v2 = cpu_cgroup()
        group = root / f"llamay-faults-{os.getpid()}"
        group.mkdir()
    except OSError as error:
        raise Skip(f"no cgroup can be made: {error.strerror}") from None
    try:
        period, quota = 100_000, int(cpus_of_quota * 100_000)
        if v2:
            (group / "cpu.max").write_text(f"{quota} {period}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        remove_group(group)


def remove_group(group):
    """Its last process may still be on its way out."""
    for _ in range(50):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.1)
    print(f"faults.py: {group} is left behind", file=sys.stderr)


def half_a_core(runner):
    with quota_group(0.5) as enter:
        try:
            cpu = runner.version(preexec_fn=enter)["cpu"]
        except subprocess.SubprocessError:
            raise Skip("no process may enter a cgroup of ours") from None
        if (cpu["quota"], cpu["threads"]) != (0.5, 1):
            raise Fault(f"sees a quota of {cpu['quota']} and would run {cpu['threads']} threads")
        runner.check(preexec_fn=enter)
        runner.check(args=["-t", "2"], preexec_fn=enter)
    return "1 thread by default; 2 give the same"


def masked_flags(runner):
    """A CPU without AVX2, and one that has it, as an emulator shows them."""
    qemu = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if os.uname().machine != "x86_64" or qemu is None:
        raise Skip("no qemu-x86_64 here")
    seen = []
    for cpu in ("max,-avx2", "max"):
        found = runner.version(prefix=[qemu, "-cpu", cpu])["cpu"]
        if not all(test["passed"] for test in found["self_test"]):
            raise Fault(f"with {cpu} a kernel set fails its test: {found['self_test']}")
        seen.append(f"{found['isa']} with {cpu}")
    if not seen[0].startswith("portable"):
        raise Fault(f"chose {seen[0]}")
    return ", ".join(seen)


def cpu_seconds(pid):
    """CPU time of all threads of a process so far, to the nanosecond where the kernel tells."""
    try:
        tasks = [Path(f"/proc/{pid}/task/{task}/schedstat").read_text() for task in os.listdir(f"/proc/{pid}/task")]
        return sum(int(text.split()[0]) for text in tasks) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_share(runner, threads):
    """The share of one CPU that a chat uses between two questions."""
    command = [runner.binary, "run", runner.model, "-i", "--temp", "0", "-n", "8", "-t", str(threads)]
    with ExitStack() as stack:
        chat = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        )
        stack.callback(chat.kill)
        chat.stdin.write(b"hello\n/stats\n")
        chat.stdin.flush()
        # The statistics come behind the answer.
        if not any(b"positions" in line for line in chat.stderr):
            raise Fault("the chat ended by itself")
        before, start = cpu_seconds(chat.pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        return (cpu_seconds(chat.pid) - before) / (time.monotonic() - start)


def idle(runner):
    if not Path("/proc/self/stat").exists():
        raise Skip("no /proc here")
    shares = {threads: idle_share(runner, threads) for threads in (2, 64)}
    for threads, share in shares.items():
        if share >= IDLE_SHARE:
            raise Fault(f"a chat of {threads} threads that waits uses {share:.1%} of a CPU")
    return ", ".join(f"{share:.3%} of a CPU with {threads} threads" for threads, share in shares.items())


CASES = {
    "one CPU": one_cpu,
    "2 threads on one CPU": two_threads_on_one_cpu,
    "64 threads on 2 CPUs": many_threads,
    "quota of half a core": half_a_core,
    "SIGSTOP and SIGCONT": stopped_and_continued,
    "beside a busy core": beside_a_busy_core,
    "each kernel set": each_isa,
    "masked CPU flags": masked_flags,
    "idle": idle,
}


def run_case(name, case, runner):
    """Prints how it went; true unless something is wrong."""
    start = time.monotonic()
    try:
        word, more = "ok", case(runner)
    except Skip as why:
        word, more = "skipped", why
    except Fault as what:
        word, more = "FAILED", what
    more = f": {more}" if more else ""
    print(f"{word:8} {name}{more} ({time.monotonic() - start:.1f} s)", flush=True)
    return word != "FAILED"


def model_path(name):
    if Path(name).exists():
        return name
    done = subprocess.run([sys.executable, FETCH, name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"faults.py: {name} cannot be fetched")
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llamay", required=True, type=Path, help="the binary")
    parser.add_argument("--model", default="smollm2", help="a name of fetch.py --list, or a GGUF file")
    parser.add_argument("--only", default="", metavar="WORD", help="the cases whose name contains this")
    args = parser.parse_args()
    runner = Runner(args.llamay.resolve(), model_path(args.model))
    runner.expected = runner.finish(runner.start())
    outcomes = [run_case(name, case, runner) for name, case in CASES.items() if args.only in name]
    if not all(outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
