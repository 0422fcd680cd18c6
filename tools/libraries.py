#!/usr/bin/env python3
"""Pinned Python packages in the cache folder, and nowhere else: `libraries.py REQUIREMENTS COMMAND...` runs a command that sees
them, in the folder of the requirements."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from fetch import cache_folder


def libraries(wanted: Path) -> Path:
    """The folder of these requirements' packages, one for each list of them and each Python."""
    key = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache_folder() / f"libraries-{key}"
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--no-deps"]
        subprocess.run([*command, "--target", str(fresh), "-r", str(wanted)], check=True, stdout=sys.stderr)
        os.replace(fresh, folder)
    return folder


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    wanted, command = Path(sys.argv[1]).resolve(), sys.argv[2:]
    environment = os.environ | {"PYTHONPATH": str(libraries(wanted))}
    return subprocess.run(command, cwd=wanted.parent, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
