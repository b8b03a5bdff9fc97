"""Lightning with ddp on 2 ranks: every sample exactly once, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, part_of
from peer_runs import make_index, prove_exact, run

needs("lightning")

_OWN_RANKS = {"use_distributed_sampler": False}


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("data"))


def fit(**options: Any) -> str:
    return run(["lightning_run.py"], options)


def test_with_the_defaults_each_sample_comes_once(train: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert fit(index=train, out=out, batch_size=16, loader="sampler") == ""
    prove_exact(train, 2, out)


def test_a_replaced_sampler_of_a_batch_sampler_is_an_error(train: Path, tmp_path: Path) -> None:
    said = fit(index=train, out=tmp_path / "run", batch_size=10, loader="batch_sampler")
    assert "not a DistributedSampler; " in said
    assert "Trainer(use_distributed_sampler=False)" in said


def with_other_loaders(train: Path, tmp_path: Path) -> None:
    needs("torchdata.stateful_dataloader")
    first, as_many, more = tmp_path / "first", tmp_path / "as-many", tmp_path / "more"
    options = {"index": train, "loader": "stateful", "batch_size": 10, "trainer": _OWN_RANKS}
    assert fit(out=first, stop_after=[1, 37], **options) == ""
    options |= {"resume": first / "stopped.ckpt"}

    assert fit(out=as_many, **options) == ""
    prove_exact(train, 2, first, as_many)

    assert (
        fit(out=more, **options | {"loader": "batch_sampler", "batch_size": 16, "ranks": 3}) == ""
    )
    prove_exact(train, 2, first, more)


def on_other_ranks_from_the_first_epoch(train: Path, tmp_path: Path) -> None:
    needs("torchdata.stateful_dataloader")
    first, rest, last = tmp_path / "first", tmp_path / "rest", tmp_path / "last"
    options = {"index": train, "batch_size": 10, "trainer": _OWN_RANKS}
    assert fit(out=first, loader="stateful", stop_after=[0, 37], **options) == ""
    options |= {"loader": "batch_sampler", "ranks": 3}
    one = _OWN_RANKS | {"max_epochs": 1}
    assert fit(out=rest, resume=first / "stopped.ckpt", **options | {"trainer": one}) == ""
    assert fit(out=last, resume=rest / "ended.ckpt", **options) == ""
    prove_exact(train, 2, first, rest, last)


def with_a_loader_with_threads(train: Path, tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("first", "second", "third")]
    options = {"index": train, "loader": "threads", "batch_size": 16}
    assert fit(out=runs[0], stop_after=[0, 20], **options) == ""
    options["resume"] = runs[0] / "stopped.ckpt"
    assert fit(out=runs[1], stop_after=[0, 47], **options) == ""
    options["resume"] = runs[1] / "stopped.ckpt"
    assert fit(out=runs[2], **options) == ""
    prove_exact(train, 2, *runs)


WAYS = [with_other_loaders, on_other_ranks_from_the_first_epoch, with_a_loader_with_threads]


@pytest.mark.parametrize("goes_on", part_of(WAYS, 1))
def test_it_goes_on_in_the_middle_of_an_epoch(
    train: Path, tmp_path: Path, goes_on: Callable[[Path, Path], None]
) -> None:
    goes_on(train, tmp_path)
