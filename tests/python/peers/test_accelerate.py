"""Accelerate under torchrun, 2 ranks by gloo: every sample exactly once, or an error."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from conftest import needs
from peer_runs import make_index, prove_exact, torchrun

needs("accelerate")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("data"))


train_on = partial(torchrun, "accelerate_run.py")


def test_a_prepared_loader_is_an_error(train: Path, tmp_path: Path) -> None:
    options = {"batch_size": 16, "loader": "sampler", "prepare_loader": True}
    said = train_on(2, index=train, out=tmp_path / "run", **options)
    assert "InvalidArgument: Accelerate" in said
    assert "accelerator.prepare()" in said


def test_epochs_are_exact_also_one_that_goes_on_in_its_middle(train: Path, tmp_path: Path) -> None:
    needs("torchdata.stateful_dataloader")
    first, as_many, more = tmp_path / "first", tmp_path / "as-many", tmp_path / "more"
    options = {"index": train, "loader": "stateful", "batch_size": 10}
    assert train_on(2, out=first, stop_after=[1, 37], **options) == ""
    prove_exact(train, 1, first)
    for rank in range(2):  # the ranks proved the epochs, too
        proofs = json.loads((first / f"proofs-{rank}.json").read_text())
        assert proofs == ["epoch 0: 2,001 samples, each exactly once: proven"]

    assert train_on(2, out=as_many, states=first, first_epoch=1, **options) == ""
    prove_exact(train, 2, first, as_many)

    token = (first / "token-0.txt").read_text()
    assert (first / "token-1.txt").read_text() == token
    options |= {"loader": "batch_sampler", "batch_size": 16}
    assert train_on(3, out=more, token=token, first_epoch=1, **options) == ""
    prove_exact(train, 2, first, more)
