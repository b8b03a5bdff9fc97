"""install() and python -m shardwise.webdataset: unchanged programs that import webdataset."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_python
from webdataset_support import own_folders, url  # noqa: F401

PROGRAM = """
import multiprocessing, sys
import webdataset as wds
from webdataset import WebDataset, WebLoader, filters, handlers
from webdataset.filters import _shuffle, pipelinefilter
from webdataset.autodecode import Decoder
from webdataset.tariterators import base_plus_ext, tar_file_expander, tarfile_to_samples, url_opener
from webdataset.utils import pytorch_worker_seed
from webdataset.writer import ShardWriter
from webdataset.shardlists import expand_urls
from webdataset.handlers import warn_and_continue

def read(dataset):
    import webdataset.filters  # found in a process that was spawned, too
    return next(iter(dataset))["__key__"]

if __name__ == "__main__":
    dataset = wds.WebDataset(sys.argv[1], shardshuffle=False)
    with multiprocessing.get_context(sys.argv[2]).Pool(1) as pool:
        print(pool.apply(read, (dataset,)), len(list(dataset)), wds.__version__, wds.__name__)
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_program_runs_unchanged_with_workers_of_any_kind(
    program: Path, url: str, start: str
) -> None:
    done = run_python(["-m", "shardwise.webdataset", str(program), url, start])
    assert done.stdout == "000000 1003 1.0.2 shardwise.webdataset\n", done.stderr


def test_a_module_runs_unchanged(program: Path, url: str) -> None:
    done = run_python(["-m", "shardwise.webdataset", "-m", "script", url, "fork"], program.parent)
    assert done.stdout == "000000 1003 1.0.2 shardwise.webdataset\n", done.stderr


def test_the_runner_says_how_it_is_used() -> None:
    assert run_python(["-m", "shardwise.webdataset", "--help"]).stdout.startswith("usage: ")
    assert run_python(["-m", "shardwise.webdataset"]).returncode == 2


def test_a_package_that_was_imported_before_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "webdataset.py").write_text("")
    late = "import webdataset, shardwise.webdataset as w; w.install()"
    done = run_python(["-c", late], tmp_path)
    assert "webdataset is already imported" in done.stderr


def test_without_torch_pipelines_run_and_loaders_say_what_they_need(url: str) -> None:
    done = run_python(
        ["-c", "import sys; sys.modules['torch'] = sys.modules['torch.utils.data'] = None\n"
         "import shardwise.webdataset as wds\n"
         "dataset = wds.WebDataset(sys.argv[1]).shuffle(9)\n"
         "print(len(list(dataset)), len(list(dataset)), len(dataset.state_dict()))\n"
         "wds.WebLoader(dataset)", url]
    )
    assert done.stdout == "1003 1003 2\n", done.stderr
    assert "a WebLoader needs torch" in done.stderr
