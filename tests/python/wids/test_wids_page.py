"""The Python in docs/python-wids.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import shardwise
from wids_support import own_folders, write_descriptor, write_tar  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "python-wids.md"


def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    members = [(f"{i:03}.{field}", data) for i in range(30) for field, data in _fields(i)]
    shard = write_tar(tmp_path / "a.tar", members)
    write_descriptor(tmp_path / "train.json", [{"url": shard.name, "nsamples": 30}])
    path = os.pathsep.join([str(Path(shardwise.__file__).parents[1]), *sys.path[1:]])
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def _fields(i: int) -> list[tuple[str, bytes]]:
    return [("jpg", b"j"), ("cls", str(i).encode())]
