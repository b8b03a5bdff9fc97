"""Runs the Python code of the pages: each page's blocks one after another, in a folder with the
shards that the pages name.

README.md and start.md run in an empty folder, and start.md with its shell commands. """

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import shardwise
from conftest import write_shown_files

ROOT = Path(__file__).parents[2]
FROM_NOTHING = ["README.md", "start.md"]
NEEDS = {
    "README.md": ["numpy"],
    "clip.ipynb": ["torch", "PIL"],
    "evaluate.ipynb": ["torch", "PIL"],
    "grain.md": ["grain"],
    "migrate-webdataset.md": ["torch", "PIL"],
    "python-torch.md": ["torch", "lightning"],
    "python-loader.md": ["torch"],
    "ray.md": ["ray", "torch"],
    "recipes.md": ["torch", "torchtitan", "jax"],
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
            pytest.skip(f"needs {module}; skipped because it is not installed")
    if page.name in FROM_NOTHING:
        run_all(page, tmp_path)
        return
    write_shown_files(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def run_all(page: Path, folder: Path) -> None:
    """Runs the Python blocks in one process. Runs shell commands (of docs/) between them."""
    beside = Path(shardwise.__file__).parents[2] / "bin"  # for a package in a build folder
    path = os.pathsep.join([str(beside), os.environ["PATH"]])
    languages = "python|sh" if page.parent.name == "docs" else "python"
    if "sh" in languages and shutil.which("shardwise", path=path) is None:
        pytest.skip("needs the program shardwise; skipped because it is not installed")
    script = ["import subprocess"]
    for language, code in re.findall(
        rf"^```({languages})\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
    ):
        if language == "sh":
            code = f"subprocess.run(['bash', '-exo', 'pipefail', '-c', {code!r}], check=True)"
        script.append(code)
    environment = os.environ | {"PATH": path, "XDG_CACHE_HOME": str(folder / "user-cache")}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "each exactly once: proven" in done.stdout


@pytest.mark.parametrize("name", ["clip", "evaluate", "first_epochs", "ray_cluster"])
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    for module in NEEDS.get(f"{name}.ipynb", []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}; skipped because it is not installed")
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
