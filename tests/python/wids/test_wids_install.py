"""install() and python -m shardwise.wids: unchanged programs that import wids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python
from wids_support import own_folders, shards, write_descriptor  # noqa: F401

PROGRAM = """
import multiprocessing, sys
import wids
from wids import ShardListDataset, wids as inner, wids_specs
from wids.wids import ChunkedSampler
from wids.wids_decode import default_decoder
from wids.wids_index import main_create

def read(dataset):
    import wids.wids  # found in a process that was spawned, too
    return dataset[5][".cls"]

if __name__ == "__main__":
    assert inner.ShardListDataset is ShardListDataset is wids.ShardListDataset
    assert wids_specs.urldir("a/b") == "a"
    dataset = wids.ShardListDataset(sys.argv[1])
    with multiprocessing.get_context(sys.argv[2]).Pool(1) as pool:
        print(pool.apply(read, (dataset,)), len(dataset), dataset[5][".cls"], wids.__version__)
"""


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_program_runs_unchanged_with_workers_of_any_kind(
    program: Path, tmp_path: Path, shards: list[Any], start: str
) -> None:
    path = write_descriptor(tmp_path / "x.json", shards)
    done = run_python(["-m", "shardwise.wids", str(program), str(path), start])
    assert done.stdout == "5 21 5 0.1.11\n", done.stderr
    assert done.returncode == 0


def test_a_module_is_run_with_its_arguments(program: Path, tmp_path: Path) -> None:
    (program.parent / "mod.py").write_text("import sys, wids; print(sys.argv[1:], __name__)")
    done = run_python(["-m", "shardwise.wids", "-m", "mod", "a"], program.parent)
    assert done.stdout == "['a'] __main__\n", done.stderr


def test_a_copy_of_wids_beside_the_program_is_not_seen(
    program: Path, tmp_path: Path, shards: list[Any]
) -> None:
    (program.parent / "wids").mkdir()
    (program.parent / "wids" / "__init__.py").write_text("raise SystemExit('the copy')")
    path = write_descriptor(tmp_path / "x.json", shards)
    done = run_python(["-m", "shardwise.wids", str(program), str(path), "spawn"])
    assert done.stdout == "5 21 5 0.1.11\n", done.stderr


def test_what_a_program_raises_and_how_it_ends_is_passed_on(program: Path) -> None:
    program.write_text("import wids, sys; sys.exit(7)")
    assert run_python(["-m", "shardwise.wids", str(program)]).returncode == 7
    program.write_text("import wids; raise ValueError('mine')")
    done = run_python(["-m", "shardwise.wids", str(program)])
    assert done.returncode == 1 and "ValueError: mine" in done.stderr
    assert run_python(["-m", "shardwise.wids"]).returncode == 2
    assert "usage:" in run_python(["-m", "shardwise.wids", "--help"]).stdout


def test_install_may_be_called_twice_but_not_after_wids(tmp_path: Path) -> None:
    code = "import shardwise.wids as w; w.install(); import wids; w.install(); print(wids is w)"
    assert run_python(["-c", code]).stdout == "True\n"
    (tmp_path / "wids").mkdir()
    (tmp_path / "wids" / "__init__.py").write_text("mine = 1")
    late = "import wids, shardwise.wids as w; w.install()"
    done = run_python(["-c", late], tmp_path)
    assert "wids is already imported, from" in done.stderr
    early = "import shardwise.wids as w; w.install(); import wids; print(hasattr(wids, 'mine'))"
    assert run_python(["-c", early], tmp_path).stdout == "False\n"


def test_importing_needs_neither_torch_nor_numpy_nor_pillow() -> None:
    code = (
        "import sys, json, shardwise.wids; shardwise.wids.install(); import wids.wids_index;"
        "print(json.dumps([m for m in ('torch', 'numpy', 'PIL') if m in sys.modules]))"
    )
    assert json.loads(run_python(["-c", code]).stdout) == []


def test_the_tool_runs_as_a_module(tmp_path: Path, shards: list[Any]) -> None:
    path = write_descriptor(tmp_path / "x.json", shards)
    done = run_python(["-m", "shardwise.wids.index_tool", "info", str(path)])
    assert "total samples: 21.0" in done.stdout, done.stderr
