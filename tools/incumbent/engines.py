"""Logits of a model file by llamay and by llama.cpp, each [n_tokens, n_vocab] in float32."""

import io
import multiprocessing
import os
import pathlib
import re
import subprocess
import tempfile

import llama_cpp
import numpy as np


class Refused(Exception):
    """A file that an engine does not run; the message is the engine's own."""


def llamay(binary: str, path: str, tokens: list[int], kv_type: str) -> np.ndarray:
    """What `llamay logits` prints."""
    ids = ",".join(map(str, tokens))
    command = [binary, "logits", path, "--tokens", ids, "--all", "-o", "npy", "--kv-type", kv_type, "-t", "1"]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise Refused(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    return np.load(io.BytesIO(done.stdout))


def llama_cpp_logits(path: str, tokens: list[int], kv_type: str) -> np.ndarray:
    """What llama.cpp computes for all tokens in one batch, without flash attention.

    In a process of its own, as llama.cpp ends the one it is in where an assertion fails.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log")
        process = context.Process(target=_evaluate, args=(path, tokens, kv_type, log, theirs))
        process.start()
        theirs.close()
        try:
            got = ours.recv()
        except EOFError:
            got = None
        process.join()
        if got is None:
            raise Refused(_complaint(log.read_text(errors="replace")))
    return got


def _evaluate(path: str, tokens: list[int], kv_type: str, log: pathlib.Path, out) -> None:
    """Sends the logits; says nothing but to the log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    kv = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}[kv_type]
    # By their names it expects certain tokens of some models.
    name = {"general.name": "generated"}
    model = llama_cpp.Llama(
        path, n_ctx=len(tokens), n_batch=len(tokens), logits_all=True, type_k=kv, type_v=kv, swa_full=True, n_threads=1,
        kv_overrides=name,
    )
    model.eval(tokens)
    out.send(np.array(model.scores[: len(tokens)]))


def _complaint(log: str) -> str:
    """The most telling line of llama.cpp's log."""
    for pattern in (r"GGML_ASSERT.*", r"error loading model: (.*)", r".*(?:error|failed).*", r".*Error.*"):
        if found := re.search(pattern, log):
            return found.group(found.re.groups).strip()
    return "no reason was given"
