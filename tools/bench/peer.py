#!/usr/bin/env python3
"""A peer engine behind commands like llamay's: one task a process, one JSON object on stdout.

llama.cpp through the ctypes layer of `llama-cpp-python`, or its fork ik_llama.cpp through that of
`ik-llama-cpp-python`, whichever this Python has; their Python classes are not used. llama.cpp runs with its API's
defaults, which are llama-bench's: f16 KV cache, flash attention when it is to be had, weights mapped and repacked for
this CPU. ik_llama.cpp runs with flash attention and its run-time repacking, its fastest way.
Times begin after the library is loaded, so Python's start never counts.

    peer.py bench MODEL [-p N] [-n N] [-d N] [-t N] [-r N]
    peer.py first-token MODEL PROMPT [-t N]
    peer.py perplexity MODEL FILE [-c N] [-t N]
    peer.py version
"""

import argparse
import ctypes
import importlib.metadata
import json
import math
import os
import random
import sys
import time

import numpy as np

BATCH = 512
WARM_UP_TOKENS = 16


def resident_kib(field):
    """`VmRSS` (now) or `VmHWM` (peak) of this process; the peak is reset by `forget_peak`."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def forget_peak():
    """Start the peak memory count here, so that Python and its imports are known and can be taken off."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


class LlamaCpp:
    """What the two libraries do differently, as llama.cpp does it."""

    package = "llama-cpp-python"

    def __init__(self):
        import llama_cpp

        self.lib = llama_cpp
        # The callback must outlive every call into the library, or it is freed under it.
        self.quiet = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.n_vocab, self.synchronize = llama_cpp.llama_vocab_n_tokens, llama_cpp.llama_synchronize
        self.bos, self.adds_bos = llama_cpp.llama_vocab_bos, llama_cpp.llama_vocab_get_add_bos

    def model_params(self):
        return self.lib.llama_model_default_params()

    def context_params(self):
        params = self.lib.llama_context_default_params()
        params.swa_full = False
        return params

    def tokenizer(self, engine):
        return engine.vocab

    def clear(self, context):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(context), False)

    def system_info(self):
        return self.lib.llama_print_system_info().decode().strip()


class IkLlamaCpp:
    """The same for ik_llama.cpp, whose ctypes layer leaves out some functions that its library has."""

    package = "ik-llama-cpp-python"

    def __init__(self):
        from ik_llama_cpp import _ctypes_api

        self.lib = _ctypes_api
        callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.quiet = callback(lambda _level, _text, _data: None)
        self.function("llama_log_set", None, callback, ctypes.c_void_p)(self.quiet, None)
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        self.n_vocab = self.function("llama_vocab_n_tokens", number, pointer)
        self.synchronize = self.function("llama_synchronize", None, pointer)
        self.bos = self.function("llama_vocab_bos", number, pointer)
        self.adds_bos = self.function("llama_vocab_get_add_bos", ctypes.c_bool, pointer)

    def function(self, name, result, *arguments):
        found = getattr(self.lib._lib, name)
        found.restype, found.argtypes = result, arguments
        return found

    def model_params(self):
        params = self.lib.llama_model_default_params()
        params.repack_tensors = True
        return params

    def context_params(self):
        params = self.lib.llama_context_default_params()
        params.flash_attn = True
        return params

    def tokenizer(self, engine):
        return engine.model

    def clear(self, context):
        self.lib.llama_kv_cache_clear(context)

    def system_info(self):
        return self.function("llama_print_system_info", ctypes.c_char_p)().decode().strip()


def find_peer():
    """The library that this Python has."""
    for peer in (LlamaCpp, IkLlamaCpp):
        try:
            importlib.metadata.version(peer.package)
        except importlib.metadata.PackageNotFoundError:
            continue
        return peer()
    return sys.exit("peer: this Python has neither llama-cpp-python nor ik-llama-cpp-python")


class Engine:
    """A model and one context of `n_ctx` positions."""

    def __init__(self, path, n_ctx, n_threads):
        self.model = lc.llama_model_load_from_file(os.fsencode(path), peer.model_params())
        if not self.model:
            sys.exit(f"peer: cannot load {path}")
        params = peer.context_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = n_threads
        self.context = lc.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"peer: cannot make a context of {n_ctx} positions")
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.n_vocab = peer.n_vocab(self.vocab)
        self.adds_bos = peer.adds_bos(self.vocab)
        self.batch = lc.llama_batch_init(BATCH, 0, 1)
        self.position = 0

    def clear(self):
        peer.clear(self.context)
        self.position = 0

    def decode(self, tokens, wants_logits):
        """One llama_decode over at most BATCH tokens; `wants_logits(position)` picks the rows to compute."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = self.position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = wants_logits(self.position + i)
        if status := lc.llama_decode(self.context, batch):
            sys.exit(f"peer: llama_decode gave {status}")
        peer.synchronize(self.context)
        self.position += len(tokens)

    def prefill(self, tokens):
        """All tokens in batches of BATCH; logits of the last of each batch only, as llama-bench does."""
        for start in range(0, len(tokens), BATCH):
            part = tokens[start : start + BATCH]
            last = self.position + len(part) - 1
            self.decode(part, lambda position: position == last)

    def tokenize(self, data, parse_special=False):
        room = (lc.llama_token * (len(data) + 8))()
        count = lc.llama_tokenize(peer.tokenizer(self), data, len(data), room, len(room), True, parse_special)
        return list(room[:count])

    def logits(self, row):
        """Logits of the batch's `row`-th token (-1: the last), a view of [n_vocab] floats."""
        pointer = lc.llama_get_logits_ith(self.context, row)
        return np.ctypeslib.as_array(pointer, shape=(self.n_vocab,))


def bench(args):
    """llama-bench's two tests: `n_prompt` tokens at once, or `n_gen` tokens one by one, after `n_depth`."""
    engine = Engine(args.model, args.n_prompt + args.n_gen + args.n_depth, args.threads)
    rng = random.Random(1)
    some = lambda n: [rng.randrange(engine.n_vocab) for _ in range(n)]

    def once(n_gen):
        if args.n_prompt:
            engine.prefill(some(args.n_prompt))
        for token in some(n_gen):
            engine.decode([token], lambda _: True)

    once(min(args.n_gen, WARM_UP_TOKENS))
    samples = []
    for _ in range(args.repetitions):
        engine.clear()
        engine.prefill(some(args.n_depth))
        start = time.perf_counter()
        once(args.n_gen)
        samples.append((args.n_prompt + args.n_gen) / (time.perf_counter() - start))
    return {"n_prompt": args.n_prompt, "n_gen": args.n_gen, "n_threads": args.threads, "samples_ts": samples}


def first_token(args):
    """Seconds from opening the file to the first greedy token of PROMPT, and peak memory beyond Python's own."""
    forget_peak()
    before = resident_kib("VmRSS")
    start = time.perf_counter()
    engine = Engine(args.model, args.ctx_size, args.threads)
    loaded = time.perf_counter()
    engine.prefill(engine.tokenize(args.prompt.encode()))
    token = int(engine.logits(-1).argmax())
    end = time.perf_counter()
    peak = resident_kib("VmHWM") - before
    return {"load_s": loaded - start, "first_token_s": end - start, "peak_mib": peak / 1024, "token": token}


def perplexity(args):
    """llama-perplexity's definition: disjoint chunks of n_ctx tokens, the second half of each scored,

    the first token of each replaced by BOS when the model asks for one. One chunk a decode (llama-perplexity
    packs several sequences in a batch, which changes nothing but rounding).
    """
    n_ctx = args.ctx_size
    engine = Engine(args.model, n_ctx, args.threads)
    # As bytes: Python's text mode would turn the line ends of another system into its own.
    with open(args.file, "rb") as file:
        tokens = engine.tokenize(file.read())
    n_chunks = len(tokens) // n_ctx
    if n_chunks < 2:
        sys.exit(f"peer: {args.file} has {len(tokens)} tokens, perplexity needs at least {2 * n_ctx}")
    first = n_ctx // 2
    losses = []
    for chunk in range(n_chunks):
        piece = tokens[chunk * n_ctx : (chunk + 1) * n_ctx]
        inputs = [peer.bos(engine.vocab), *piece[1:]] if engine.adds_bos else piece
        engine.clear()
        for start in range(0, n_ctx, BATCH):
            part = inputs[start : start + BATCH]
            engine.decode(part, lambda position: position >= first)
            for i in range(len(part)):
                if first <= start + i < n_ctx - 1:
                    row = engine.logits(i).astype(np.float64)
                    top = row.max()
                    losses.append(top + math.log(np.exp(row - top).sum()) - row[piece[start + i + 1]])
    losses = np.array(losses)
    mean = losses.mean()
    error = math.sqrt(max((losses**2).mean() - mean**2, 0.0) / (len(losses) - 1)) * math.exp(mean)
    return {"ppl": math.exp(mean), "stderr": error, "chunks": n_chunks, "tokens": len(losses)}


def version(_):
    return {peer.package: importlib.metadata.version(peer.package), "system_info": peer.system_info()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name, run, *positionals):
        sub = commands.add_parser(name)
        sub.set_defaults(run=run)
        for positional in positionals:
            sub.add_argument(positional)
        sub.add_argument("-t", "--threads", type=int, default=os.cpu_count())
        sub.add_argument("-c", "--ctx-size", type=int, default=512)
        return sub

    sub = command("bench", bench, "model")
    sub.add_argument("-p", "--n-prompt", type=int, default=0)
    sub.add_argument("-n", "--n-gen", type=int, default=0)
    sub.add_argument("-d", "--n-depth", type=int, default=0)
    sub.add_argument("-r", "--repetitions", type=int, default=1)
    command("first-token", first_token, "model", "prompt")
    command("perplexity", perplexity, "model", "file")
    command("version", version)
    args = parser.parse_args()
    lc.llama_backend_init()
    print(json.dumps(args.run(args)))


if __name__ == "__main__":
    peer = find_peer()
    lc = peer.lib
    main()
