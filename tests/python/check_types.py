"""Checks the package's types: that _core.pyi is what the extension gives, and that mypy agrees.

    check_types.py SOURCE-FOLDER [--write]     --write makes _core.pyi anew
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    source = Path(sys.argv[1])
    kept = source / "python/shardwise/_core.pyi"
    with tempfile.TemporaryDirectory() as folder:
        made = kept if "--write" in sys.argv else Path(folder) / "_core.pyi"
        patterns = source / "python/stub_patterns.txt"
        subprocess.run(
            [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "shardwise._core"]
            + ["-o", str(made), "-p", str(patterns)],
            check=True,
            cwd=folder,
        )
        if made.read_text() != kept.read_text():
            print(f"{kept} is not what the extension gives: run {sys.argv[0]} {source} --write")
            return 1
    checked = [sys.executable, "-m", "mypy", "--config-file", str(source / "pyproject.toml")]
    return subprocess.run([*checked, str(source / "python/shardwise")]).returncode


if __name__ == "__main__":
    sys.exit(main())
