"""The Python of the pages: each page's blocks run one after another, on shards as they name them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_shard

import shardwise

ROOT = Path(__file__).parents[2]
NEEDS = {"README.md": ["numpy"], "python-torch.md": ["torch", "lightning"], "python-loader.md": ["torch"]}

# A picture of 16 x 12, of one colour.
JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb0043001b12141714111b1716171e1c1b2028422b28252528"
    "513a3d3042605565645f555d5b6a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffdb00"
    "43011c1e1e2823284e2b2b4ea46e5d6ea4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4"
    "a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4ffc0001108000c001003012200021101031101ffc40015000101"
    "00000000000000000000000000000004ffc40014100100000000000000000000000000000000ffc4001501010100"
    "000000000000000000000000000005ffc40014110100000000000000000000000000000000ffda000c0301000211"
    "0311003f008c015dffd9"
)


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if "```python\n" in page.read_text()]


def test_there_are_pages() -> None:
    assert ROOT / "docs/python.md" in pages()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    for module in NEEDS.get(page.name, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")
    for shard in range(4):
        first = shard * 100
        write_shard(
            tmp_path / f"train-{shard:06}.tar",
            [
                (f"{i:06}", {"jpg": JPEG, "cls": str(i % 10).encode(), "txt": f"no. {i}".encode()})
                for i in range(first, first + 100)
            ],
        )
    listed = [{"url": f"train-{shard:06}.tar", "nsamples": 100} for shard in range(4)]
    (tmp_path / "train.json").write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    for name in ("train.idx", "other.idx"):
        shardwise.index(tmp_path / name, tmp_path / "train-{000000..000003}.tar", columns=["cls"])
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "examples/first_epochs.ipynb").read_text())
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n".join(cells))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("each exactly once: proven") == 2
