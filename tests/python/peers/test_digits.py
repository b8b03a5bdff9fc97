"""Public data: examples/python/digits.py, and the picture of its run that tools/pictures.py draws."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import needs
from peer_runs import launch

needs("torch")
needs("sklearn")

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "examples" / "python" / "digits.py"
NUM_DIGITS = 1797


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def test_a_killed_training_continues_on_other_ranks(tmp_path: Path) -> None:
    arguments = "--out run --ranks 2 1 --epochs 2 --step-size 300 --kill-after 9 --save-every 4"
    code, said = launch([str(PROGRAM), *arguments.split()], tmp_path)
    assert code == 0, said
    assert re.findall(r"(\w+): epoch (\d): 1,797 samples, each exactly once: proven", said) == [
        (name, epoch) for name in ("whole", "killed") for epoch in "01"
    ]
    assert "(SIGKILL)" in said  # torchrun says so
    assert "world size 2, killed in epoch 1: 9 steps, the same samples in each; losses " in said
    assert "world size 1, resumed from step 8: 4 steps, the same samples in each; losses " in said

    # The log says so, too: without the steps after the checkpoint, each epoch has each digit once.
    lines = steps_of(tmp_path / "run" / "killed")
    assert [line["step"] for line in lines] == [*range(1, 10), *range(9, 13)]
    assert [line["ranks"] for line in lines] == 9 * [2] + 4 * [1]
    counts: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
    for line in lines[:8] + lines[9:]:
        counts[line["epoch"]].update(line["samples"])
    for count in counts.values():
        assert count == Counter(range(NUM_DIGITS))
    whole = steps_of(tmp_path / "run" / "whole")
    assert len(whole) == 12
    for line in lines:
        assert line["loss"] == pytest.approx(whole[line["step"] - 1]["loss"], rel=1e-6)

    pictures = imported(ROOT / "tools" / "pictures.py")
    drawn = ElementTree.fromstring(pictures.resume(str(tmp_path / "run")))
    texts = [part.text for part in drawn.iter()]
    assert "SIGKILL after step 9" in texts and "last checkpoint: step 8" in texts

    # Other samples in a step are noticed.
    lines[-1]["samples"][0] += 1
    with pytest.raises(SystemExit, match="resumed: the samples of a step differ"):
        imported(PROGRAM).compare("resumed", whole, lines[9:])
    log = tmp_path / "run" / "killed" / "steps.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(AssertionError, match="step 12 has other samples"):
        pictures.resume(str(tmp_path / "run"))


def test_ranks_that_do_not_divide_a_step_are_refused(tmp_path: Path) -> None:
    code, said = launch([str(PROGRAM), "--out", "run", "--ranks", "2", "5"], tmp_path)
    assert code == 2 and "--ranks must divide --step-size" in said


def test_a_kill_before_the_first_checkpoint_is_refused(tmp_path: Path) -> None:
    code, said = launch([str(PROGRAM), "--out", "run", "--kill-after", "7"], tmp_path)
    assert code == 2 and "--kill-after must be at least --save-every" in said, said
