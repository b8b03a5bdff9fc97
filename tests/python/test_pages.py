"""The Python of the pages: each page's blocks run one after another, on shards as they name them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_shard

ROOT = Path(__file__).parents[2]
NEEDS = {"python-torch.md": ["torch"]}

# A picture of 16 x 16, one colour.
JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb0043000806060706050807070709090a0c140d0c0b0b0c1912"
    "130f141d1a1f1e1d1a1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc0000b0800"
    "1000100101110000ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc400b51000"
    "02010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f0"
    "2433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768"
    "696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3"
    "c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda0008010100003f00f9"
    "fe8a28a28a28ffd9"
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
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
