"""Runs the Python code in docs/python-wids.md."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import run_python
from wids_support import own_folders, write_descriptor, write_tar  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "python-wids.md"


def test_the_blocks_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    members = [(f"{i:03}.{field}", data) for i in range(30) for field, data in _fields(i)]
    shard = write_tar(tmp_path / "a.tar", members)
    write_descriptor(tmp_path / "train.json", [{"url": shard.name, "nsamples": 30}])
    for block in blocks:
        done = run_python(["-W", "error", "-c", block], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def _fields(i: int) -> list[tuple[str, bytes]]:
    return [("jpg", b"j"), ("cls", str(i).encode())]
