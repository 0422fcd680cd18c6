# Every target does the real thing or says plainly why it cannot. `make` alone lists them.

CARGO ?= cargo
PYTHON ?= python3
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
LLAMAY := $(TARGET_DIR)/release/llamay
MUSL := x86_64-unknown-linux-musl

# What `make demo` asks. Greedy, so the answer is the same on every machine.
DEMO_PROMPT ?= What is the capital of France? Answer in one sentence.
# Seconds that `make fuzz` spends on each target.
FUZZ_SECONDS ?= 30

.DEFAULT_GOAL := help
.PHONY: help build build-musl build-metal build-fast build-cuda build-vulkan build-gpu cross cross-portable \
        demo test test-shapes test-convert test-vectors test-faults loom lint deny incumbent bench fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the release binary: CPU only, no C, links nothing but libc
	$(CARGO) build --release --locked -p llamay

build-musl: ## Build a static binary that runs on any Linux, glibc or not
	tools/cross/target.sh build $(MUSL) --release -p llamay

build-fast: ## (not built yet) Approximate kernels, named and bounded
	@echo "make build-fast: not built yet: there is no approximate kernel; 'make build' has every kernel there is" >&2; exit 2

build-metal: ## (not built yet) Apple GPUs
	@echo "make build-metal: not built yet: there is no Metal backend; 'make build' runs models on the CPU" >&2; exit 2

build-cuda: ## (not built yet) NVIDIA GPUs
	@echo "make build-cuda: not built yet: there is no CUDA backend; 'make build' runs models on the CPU" >&2; exit 2

build-vulkan: ## Build with the Vulkan backend: any GPU, whose driver is found at run time
	$(CARGO) build --release --locked -p llamay --features vulkan

build-gpu: build-vulkan ## Build with every GPU backend that there is for Linux and Windows: Vulkan

cross: ## Build for Linux, macOS and Windows on x86-64 and AArch64; check what cannot be linked here
	tools/cross/all.sh desktop

cross-portable: ## Run the suite on s390x, riscv64, ppc64le and AArch64 under emulation, and WebAssembly under wasmtime
	tools/cross/all.sh portable

demo: build ## Fetch a small real model and stream a chat answer from it
	@model=$$($(PYTHON) tools/fetch.py smollm2) && \
	echo "$(LLAMAY) run $$model \"$(DEMO_PROMPT)\"" >&2 && \
	$(LLAMAY) run "$$model" "$(DEMO_PROMPT)" --temp 0 --seed 1 -n 64

# Tests that read real models or texts skip themselves, with one line, where the fetch has failed.
test: ## Run the whole suite, doc tests included
	@$(PYTHON) tools/fetch.py --all-test > /dev/null || echo "make test: without all of the real models and texts" >&2
	@if $(CARGO) nextest --version > /dev/null 2>&1; then \
		$(CARGO) test --workspace --doc && $(CARGO) nextest run --workspace; \
	else \
		$(CARGO) test --workspace; \
	fi

test-shapes: ## Every generated model in every weight format that fits it, on every kernel set (long)
	LLAMAY_ALL_FORMATS=1 $(CARGO) test --release -p llamay-engine --test equality every_shape

test-convert: ## Test the converter of Hugging Face checkpoints and adapters
	$(PYTHON) tools/libraries.py tools/convert/requirements.txt $(PYTHON) -m unittest --quiet test_convert test_lora

test-vectors: ## Compare tokens with the libraries that own the vocabularies
	$(PYTHON) tools/tokenizer/vectors.py

test-faults: build ## Disturb a running model (quota, one CPU, stops, 64 threads) and compare its answers
	$(PYTHON) tools/faults/faults.py --llamay $(LLAMAY)

# A target folder of its own: the flag would make everything else compile anew.
loom: ## Check the thread pool's protocol under every interleaving
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --target-dir $(TARGET_DIR)/loom -p llamay-cpu --test loom_pool

lint: ## Check formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

deny: ## Check licences, banned crates and sources
	tools/deny.sh check licenses bans sources

incumbent: build ## Compare the generated models with llama.cpp, which is built first where it is missing
	$(CARGO) build --release -p llamay-model --features test-data --example shapes
	$(PYTHON) tools/incumbent/compare.py --llamay $(LLAMAY) --shapes $(TARGET_DIR)/release/examples/shapes

bench: build ## Time llamay against llama.cpp and ik_llama.cpp, in turns, on this machine (BENCH="--all --reps 3")
	$(PYTHON) tools/bench/bench.py --llamay $(LLAMAY) $(BENCH)

fuzz: ## Fuzz every parser for FUZZ_SECONDS each
	tools/fuzz.sh $(FUZZ_SECONDS)

clean: ## Remove what was built
	$(CARGO) clean
