#!/usr/bin/env python3
"""Makes gguf/tests/byteswap/{little,big}.bin: one model in both byte orders, converted by the `gguf` package.

    pip install gguf && tools/corpus/make_byteswap.py

The package's converter knows the fields of the types below and of no others.
"""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4"]
FOLDER = Path(__file__).resolve().parents[2] / "gguf" / "tests" / "byteswap"


def main():
    FOLDER.mkdir(exist_ok=True)
    little, big = FOLDER / "little.bin", FOLDER / "big.bin"
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(little, "llama")
    writer.add_array("test.tokens", ["a", "é", ""])
    writer.add_array("test.scores", [0.5, -1.0])
    writer.add_uint64("test.u64", 2**40 + 1)
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            dtype = np.float32 if kind == gguf.GGMLQuantizationType.F32 else np.float16
            writer.add_tensor(name, random.standard_normal(8).astype(dtype))
        else:
            blocks = random.integers(0, 256, (2, 2 * block_bytes), dtype=np.uint8)
            writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    big.write_bytes(little.read_bytes())
    script = "from gguf.scripts.gguf_convert_endian import main; main()"
    subprocess.run([sys.executable, "-c", script, str(big), "big"], input=b"YES\n", check=True, capture_output=True)


if __name__ == "__main__":
    main()
