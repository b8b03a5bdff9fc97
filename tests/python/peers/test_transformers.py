"""The Trainer of transformers: each sample exactly once, also after resuming within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from peer_runs import make_index, prove_exact, run, torchrun

needs("transformers")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("data"))


def train_on(ranks: int, **options: Any) -> str:
    if ranks == 1:
        return run(["transformers_run.py"], options)
    return torchrun("transformers_run.py", ranks, **options)


def test_a_sampler_goes_on_where_the_trainer_stood(train: Path, tmp_path: Path) -> None:
    first, rest = tmp_path / "first", tmp_path / "rest"
    options = {"index": train, "loader": "sampler", "batch_size": 32}  # 63 steps per epoch
    assert train_on(1, out=first, stop_after=100, **options) == ""
    assert train_on(1, out=rest, resume=first / "checkpoint-100", **options) == ""
    prove_exact(train, 2, first, rest)


def test_a_sampler_on_several_ranks_is_an_error(train: Path, tmp_path: Path) -> None:
    said = train_on(2, index=train, out=tmp_path / "run", loader="sampler", batch_size=16)
    assert "InvalidArgument: Accelerate" in said
