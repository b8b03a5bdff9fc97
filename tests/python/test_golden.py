"""The texts that the package raises and warns with: sessions of golden/*.txt, compared as a whole.

A line `>>> code` is run, and the lines after it are what it shows: values, warnings and errors, each with its
class. SHARDWISE_UPDATE_GOLDEN=1 rewrites them: read the difference before you commit it."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shown_files

import shardwise

needs("numpy")

SESSIONS = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def shown(code: str, names: dict[str, Any]) -> str:
    """Returns what a Python session shows for a line of code."""
    lines = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            try:
                value = eval(code, names)
            except SyntaxError:
                exec(code, names)
                value = None
            if value is not None:
                lines.append(repr(value))
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
    lines += [f"{type(one.message).__name__}: {one.message}" for one in caught]
    return "".join(line + "\n" for line in lines)


@pytest.mark.parametrize("path", SESSIONS, ids=[path.stem for path in SESSIONS])
def test_the_package_says_this(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shown_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = {"shardwise": shardwise, "columns": shardwise.columns, "ds": shardwise.open("train.idx")}
    golden = path.read_text(encoding="utf-8")
    now = ""
    for line in golden.splitlines(keepends=True):
        if line.startswith((">>> ", "#")) or not line.strip():
            now += line
            if line.startswith(">>> "):
                said = shown(line[4:], names).replace(str(tmp_path), "DIR")
                now += re.sub(r"0x[0-9a-f]+", "ADDRESS", said)
    if os.environ.get("SHARDWISE_UPDATE_GOLDEN") and now != golden:
        path.write_text(now, encoding="utf-8")
        pytest.skip("needs no SHARDWISE_UPDATE_GOLDEN; skipped because the file was just written")
    assert now == golden
    assert not re.search(r"[A-Z][A-Za-z]+::", now), "a name of C++"
