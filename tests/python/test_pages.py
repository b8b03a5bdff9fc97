"""The Python of the pages: each page's blocks run one after another, on shards as they name them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_shown_files

ROOT = Path(__file__).parents[2]
NEEDS = {
    "README.md": ["numpy"],
    "grain.md": ["grain"],
    "migrate-webdataset.md": ["torch", "PIL"],
    "python-torch.md": ["torch", "lightning"],
    "python-loader.md": ["torch"],
    "ray.md": ["ray", "torch"],
    "ray_cluster.ipynb": ["ray", "torch"],
}


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
    write_shown_files(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["first_epochs", "ray_cluster"])
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    for module in NEEDS.get(f"{name}.ipynb", []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module}")
    notebook = json.loads((ROOT / f"examples/{name}.ipynb").read_text())
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n".join(cells))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("each exactly once: proven") == 2
