#!/usr/bin/env python3
"""Compare llamay's tokens with those of the libraries that own the vocabularies: what `make test-vectors` runs.

Fetches the vocabularies (`tools/fetch.py --vectors`), installs the pinned libraries of requirements.txt into the cache
folder, beside them and nowhere else, and runs `parity.py live`. Exit status 1 if a token differs, 3 if something cannot be
fetched.
"""

import os
import subprocess
import sys
from pathlib import Path

UNAVAILABLE = 3
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fetch import cache_folder  # noqa: E402
from libraries import libraries  # noqa: E402


def main() -> int:
    cache = cache_folder()
    fetch = [sys.executable, str(HERE.parent / "fetch.py"), "--vectors"]
    if subprocess.run(fetch, stdout=subprocess.DEVNULL).returncode != 0:
        return UNAVAILABLE
    environment = os.environ | {"PYTHONPATH": str(libraries(HERE / "requirements.txt"))}
    parity = [sys.executable, str(HERE / "parity.py"), "live", "--cache", str(cache), *sys.argv[1:]]
    return subprocess.run(parity, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
