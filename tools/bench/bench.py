#!/usr/bin/env python3
"""Time llamay against llama.cpp and ik_llama.cpp on this machine, all in one run and in turns.

    bench.py                 prefill and decode, at the start and at depth 2048, 1 and 2 threads
    bench.py --formats       prefill and decode of one model in every format that `llamay quantize` writes
    bench.py --load          opening a model to its first token, and peak memory
    bench.py --noisy         what decoding keeps when another process burns a core
    bench.py --ppl           perplexity of the same text, beside llama.cpp alone
    bench.py --all           all of it

Each sample is a process of its own, which loads the model (not timed), runs the shape once unseen and once timed. So
no engine ever runs beside another's idle threads or memory, and a slow minute of the machine falls on all: the order
is A B C, C B A, A B C, …, and a ratio is taken within each round, to the better of the peers. Machines are noisy: read
the spread before the median.

The peers are installed by pip into private environments in the cache on the first run (native builds, up to half an
hour each on two cores). Results go to stdout as a table and to bench/results/ as JSON.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
import fetch  # noqa: E402

PROMPT = "The Eiffel Tower stands in the city of"
# Flags of `bench` for each figure of a model, and those of the sweep over formats.
TESTS = {
    "pp512": ("-p", 512, "-n", 0),
    "tg128": ("-p", 0, "-n", 128),
    "pp512 @ 2048": ("-p", 512, "-n", 0, "-d", 2048),
    "tg64 @ 2048": ("-p", 0, "-n", 64, "-d", 2048),
}
FORMAT_TESTS = {"pp128": ("-p", 128, "-n", 0), "tg32": ("-p", 0, "-n", 32)}
FORMAT_MODEL = "qwen2.5-coder-1.5b"
# 46 kB is about two dozen chunks of 512 tokens: enough for the engines' difference, too little for a figure of merit.
TEXT_BYTES = 46_000


def say(text):
    print(text, file=sys.stderr, flush=True)


class Failed(Exception):
    """An engine that ended with an error: its last words."""


def run_json(command):
    """Run a process and parse the JSON object, or array of one, that it prints."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} exited {done.returncode}:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    return found[0] if isinstance(found, list) else found


class Llamay:
    """The release binary, through its public commands."""

    name = "llamay"

    def __init__(self, binary):
        self.binary = binary

    def version(self):
        return run_json([self.binary, "version", "--json"])

    def speed(self, model, shape, threads):
        """Tokens per second of one timed repetition of `shape` (flags of `bench`)."""
        command = [self.binary, "bench", "-m", model, *shape, "-t", threads, "-r", 1, "-o", "json"]
        return run_json(command)["samples_ts"][0]

    def first_token(self, model, threads):
        """Whole process, start to exit, for one greedy token; peak memory as the kernel counted it.

        That is stricter than the peer's figure, which leaves out process start and exit.
        """
        command = [self.binary, "run", model, PROMPT, "--raw", "-n", 1, "--temp", 0, "-t", threads]
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"bench.py: {' '.join(map(str, command))} exited {process.returncode}")
        return {"first_token_s": time.perf_counter() - start, "peak_mib": usage.ru_maxrss / 1024}

    def perplexity(self, model, text, threads):
        return run_json([self.binary, "perplexity", model, text, "-c", 512, "-t", threads, "-o", "json"])


class Peer:
    """A peer, through peer.py in a private environment."""

    name = "llama.cpp"
    package = "llama-cpp-python==0.3.36"
    folder = "peer-venv"

    def __init__(self, cache):
        self.venv = cache / self.folder
        self.python = self.venv / "bin" / "python"
        self.driver = HERE / "peer.py"

    def installed(self):
        if not self.python.exists():
            return False
        name, version = self.package.split("==")
        query = [str(self.python), "-c", f"import importlib.metadata as m; print(m.version('{name}'))"]
        found = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return found.stdout.strip() == version

    def command(self, *command, **environment):
        """Runs a command whose output matters only where it fails."""
        environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), **environment}
        done = subprocess.run(
            [str(part) for part in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            command = " ".join(map(str, command))
            sys.exit(f"bench.py: {command} exited {done.returncode}:\n{done.stdout[-2000:]}")

    def install(self):
        if self.installed():
            return
        say(f"installing {self.package} into {self.venv}: it is built for this CPU, up to half an hour")
        self.command(sys.executable, "-m", "venv", self.venv)
        self.build()

    def build(self):
        pip = [self.python, "-m", "pip", "install", "--quiet"]
        self.command(*pip, self.package, "numpy", CMAKE_ARGS="-DGGML_NATIVE=ON")

    def ask(self, *command):
        return run_json([self.python, self.driver, *command])

    def version(self):
        return self.ask("version")

    def speed(self, model, shape, threads):
        return self.ask("bench", model, *shape, "-t", threads, "-r", 1)["samples_ts"][0]

    def first_token(self, model, threads):
        found = self.ask("first-token", model, PROMPT, "-t", threads)
        return {key: found[key] for key in ("first_token_s", "peak_mib")}

    def perplexity(self, model, text, threads):
        return self.ask("perplexity", model, text, "-c", 512, "-t", threads)


class Fork(Peer):
    """ik_llama.cpp. The wheels are for AVX2 alone, and pip cannot build the source archive, in which a file is missing
    that the library does not need. So the binding comes from the wheel and the library from the archive.
    """

    name = "ik_llama.cpp"
    package = "ik-llama-cpp-python==0.1.5"
    folder = "peer-ik-venv"

    def library(self):
        return self.venv / "native" / "src" / "libllama.so"

    def installed(self):
        return super().installed() and self.library().exists()

    def build(self):
        pip = [self.python, "-m", "pip"]
        self.command(*pip, "install", "--quiet", self.package, "numpy", "cmake", "ninja")
        with tempfile.TemporaryDirectory() as folder:
            archive = ["--no-deps", "--no-binary", self.package.split("==")[0]]
            self.command(*pip, "download", "--quiet", *archive, "-d", folder, self.package)
            [archive] = Path(folder).glob("*.tar.gz")
            shutil.unpack_archive(archive, folder, filter="data")
            [source] = Path(folder).glob("*/vendor/ik_llama.cpp")
            cmake, ninja = self.venv / "bin" / "cmake", self.venv / "bin" / "ninja"
            build = self.venv / "native"
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=ON"]
            options += [f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "SERVER")]
            self.command(cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", source, "-B", build, *options)
            self.command(cmake, "--build", build, "--target", "llama")

    def ask(self, *command):
        os.environ["IK_LLAMA_CPP_LIB_PATH"] = str(self.library())
        return super().ask(*command)


def find_peers(cache):
    return [Peer(cache), Fork(cache)]


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}


def alternate(engines, reps, sample):
    """`sample(engine)` for each engine, `reps` times, the order swapped each time; a list of samples per engine, or, for a
    peer that cannot do it, its failure."""
    found = [[] for _ in engines]
    for rep in range(reps):
        order = range(len(engines)) if rep % 2 == 0 else reversed(range(len(engines)))
        for index in order:
            if isinstance(found[index], Failed):
                continue
            try:
                found[index].append(sample(engines[index]))
            except Failed as error:
                if isinstance(engines[index], Llamay):
                    raise
                say(f"{engines[index].name}: {error}")
                found[index] = error
    return found


def compared(engines, found, better=max):
    """Medians per engine and, where peers ran, llamay's ratio to the better of them in each round."""
    row = {e.name: {"failed": True} if isinstance(v, Failed) else summary(v) for e, v in zip(engines, found)}
    answers = [values for values in found if not isinstance(values, Failed)]
    if len(answers) > 1 and isinstance(engines[0], Llamay):
        row["ratio"] = summary([ours / better(peers) for ours, *peers in zip(*answers)])
    return row


def compare(engines, reps, sample):
    return compared(engines, alternate(engines, reps, sample))


@contextmanager
def burning_core():
    """Another process that never rests, left to the scheduler as a stranger's would be."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def show(title, row, unit):
    """One line of the table: each engine's median, then the ratio with its spread."""
    values = {name: "  failed" if "failed" in entry else f"{entry['median']:8.2f} {unit}" for name, entry in row.items()}
    cells = [f"{name} {value}" for name, value in values.items() if name != "ratio"]
    if ratio := row.get("ratio"):
        cells.append(f"ratio {ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})")
    print(f"{title:<38} {'  '.join(cells)}", flush=True)


def run_tests(engines, models, tests, args):
    rows = []
    for name, model in models:
        for threads in args.threads:
            for test, shape in tests.items():
                row = compare(engines, args.reps, lambda engine: engine.speed(model, shape, threads))
                show(f"{name} {test} t={threads}", row, "t/s")
                rows.append({"model": name, "test": test, "threads": threads, "unit": "t/s", **row})
    return rows


def run_speed(engines, models, args):
    wanted = {test: shape for test, shape in TESTS.items() if not args.tests or test in args.tests}
    return run_tests(engines, models, wanted, args)


def run_formats(engines, _models, args):
    """One model requantised; every matrix in the same format, so that a figure is that of one kernel."""
    (_, source), = find_models([FORMAT_MODEL])
    rows = []
    with tempfile.TemporaryDirectory(prefix="llamay-bench-") as folder:
        for name in args.formats_of or writable_formats(args.llamay):
            model = Path(folder) / f"{name}.gguf"
            subprocess.run([args.llamay, "quantize", "--pure", source, model, name], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            rows += run_tests(engines, [(name, model)], FORMAT_TESTS, args)
            model.unlink()
    return rows


def writable_formats(llamay):
    return [row["name"] for row in run_json([llamay, "version", "--json"])["formats"] if row["quantize"]]


def run_load(engines, models, args):
    rows = []
    threads = max(args.threads)
    for name, model in models:
        found = alternate(engines, args.reps, lambda engine: engine.first_token(model, threads))
        file_mib = model.stat().st_size / 2**20
        for key, unit in (("first_token_s", "s"), ("peak_mib", "MiB")):
            values = [s if isinstance(s, Failed) else [sample[key] for sample in s] for s in found]
            row = compared(engines, values, better=min)
            show(f"{name} {key} (file {file_mib:.0f} MiB)", row, unit)
            rows.append({"model": name, "test": key, "threads": threads, "unit": unit, "file_mib": file_mib, **row})
    return rows


def run_noisy(engines, models, args):
    """Share of its quiet two-thread decode speed that each engine keeps beside one busy process."""
    rows = []
    threads = max(args.threads)
    shape = TESTS["tg128"]

    def kept(engine, model):
        quiet = engine.speed(model, shape, threads)
        with burning_core():
            return engine.speed(model, shape, threads) / quiet * 100

    for name, model in models:
        row = compare(engines, args.reps, lambda engine: kept(engine, model))
        show(f"{name} tg128 t={threads} kept beside a busy core", row, "%")
        rows.append({"model": name, "test": "noisy", "threads": threads, "unit": "%", **row})
    return rows


def run_perplexity(engines, models, args):
    rows = []
    threads = max(args.threads)
    # ik_llama.cpp gives no logits of several positions that a perplexity could be made of.
    engines = [engine for engine in engines if engine.name != "ik_llama.cpp"]
    text = fetch_asset("texts") / "alice29.txt"
    with tempfile.NamedTemporaryFile(suffix=".txt") as part:
        part.write(text.read_bytes()[:TEXT_BYTES])
        part.flush()
        for name, model in models:
            found = [engine.perplexity(model, part.name, threads) for engine in engines]
            cells = [f"{e.name} {f['ppl']:.4f} ± {f['stderr']:.4f}" for e, f in zip(engines, found)]
            row = {"model": name, "test": "perplexity", **{e.name: f for e, f in zip(engines, found)}}
            if len(found) == 2:
                row["difference_percent"] = (found[0]["ppl"] / found[1]["ppl"] - 1) * 100
                cells.append(f"difference {row['difference_percent']:+.3f} %")
            print(f"{name + ' perplexity':<38} {'  '.join(cells)}", flush=True)
            rows.append(row)
    return rows


def fetch_asset(name):
    asset = next(asset for asset in fetch.ASSETS if asset.name == name)
    with tempfile.TemporaryDirectory(prefix="llamay-fetch-") as folder:
        return fetch.fetch(asset, fetch.cache_folder(), fetch.Downloads(folder))


def find_models(names):
    """(name, path) of each: an asset of fetch.py, or a path to a GGUF."""
    known = {asset.name for asset in fetch.ASSETS}
    return [(name, fetch_asset(name)) if name in known else (Path(name).stem, Path(name)) for name in names]


def cpu_name():
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^(?:model name|Model)\s*: (.+)$", file.read(), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def write_results(report, out):
    if out is None:
        slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", report["cpu"].lower())).strip("-")
        out = ROOT / "bench" / "results" / f"{slug}-{report['date'][:10]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    say(f"written to {out}")


MODES = {"speed": run_speed, "formats": run_formats, "load": run_load, "noisy": run_noisy, "ppl": run_perplexity}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for mode, run in MODES.items():
        parser.add_argument(f"--{mode}", action="store_true", help=f"run this part (speed alone is the default): {run.__name__}")
    parser.add_argument("--all", action="store_true", help="run every part")
    parser.add_argument("--models", nargs="+", default=["smollm2", "gemma3", FORMAT_MODEL], help="names of fetch.py --list, or GGUF paths")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--tests", nargs="+", choices=TESTS, help="only these of the speed figures")
    parser.add_argument("--formats-of", nargs="+", metavar="FORMAT", help="only these of the formats")
    parser.add_argument("--reps", type=int, default=5, help="rounds of samples for each figure")
    parser.add_argument("--llamay", type=Path, default=ROOT / "target" / "release" / "llamay", help="the binary to time")
    parser.add_argument("--engines", nargs="+", default=["llamay", "llama.cpp", "ik_llama.cpp"], help="only these")
    parser.add_argument("--out", type=Path, help="JSON file to write (default: bench/results/<cpu>-<date>.json)")
    args = parser.parse_args()
    modes = [mode for mode in MODES if args.all or getattr(args, mode)] or ["speed"]

    engines = [engine for engine in [Llamay(args.llamay), *find_peers(fetch.cache_folder())] if engine.name in args.engines]
    if not engines:
        sys.exit("bench.py: --engines names none of llamay, llama.cpp, ik_llama.cpp")
    if not args.llamay.exists():
        sys.exit(f"bench.py: {args.llamay} is not there; run `make build` first")
    for engine in engines:
        if isinstance(engine, Peer):
            engine.install()
    models = find_models(args.models)

    report = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "os": platform.platform(),
        "reps": args.reps,
        "versions": {engine.name: engine.version() for engine in engines},
    }
    print(f"{report['cpu']}, {report['cores']} cores; medians of {args.reps}, ratio llamay ÷ the better peer with min–max of the rounds")
    for mode in modes:
        report[mode] = MODES[mode](engines, models, args)
        # After each part: what has been measured is kept, whatever happens to the next.
        write_results(report, args.out)


if __name__ == "__main__":
    try:
        main()
    except (fetch.FetchError, Failed) as error:
        sys.exit(f"bench.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
