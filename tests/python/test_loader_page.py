"""The blocks of docs/python-loader.md run, one after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_shard

import shardwise

PAGE = Path(__file__).parents[2] / "docs" / "python-loader.md"


def picture(number: int) -> bytes:
    """A PPM of 8 x 8 pixels."""
    return b"P6\n8 8\n255\n" + bytes([number]) * 192


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train", "other"):
        samples = [
            (
                f"k{i}",
                {
                    "ppm": picture(i),
                    "cls": str(i).encode(),
                    "txt": b"a caption",
                    "xyz": np.arange(i % 3 * 3, dtype=np.float32).tobytes(),
                },
            )
            for i in range(20)
        ]
        write_shard(tmp_path / f"{name}.tar", samples)
        shardwise.index(f"{name}.idx", f"{name}.tar", threads=0)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        block = block.replace('"jpg;png"', '"jpg;png;ppm"')
        if "torch" in block:
            block = block.replace('batch.torch("cls")', 'batch["cls"]')
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["images"].shape == (20, 3, 224, 224)
    assert names["captions"] == ["a caption"] * 20
    assert "epoch 1: 20 samples, each exactly once: proven" in capsys.readouterr().out
    epoch = next(names["loader"].epochs())
    assert sum(len(batch) for batch in epoch) > 0
    assert "proven" in epoch.prove()
