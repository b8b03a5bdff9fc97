"""torch.distributed.checkpoint: a checkpointed Loader continues at its position, on any number of
ranks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from peer_runs import make_index, prove_exact, torchrun

pytest.importorskip("torch", reason="torch is not installed")


train_on = partial(torchrun, "dcp_run.py")


def test_a_loader_in_a_checkpoint_goes_on_with_as_many_ranks_and_with_more(tmp_path: Path) -> None:
    train = make_index(tmp_path / "data")
    first, as_many, more = tmp_path / "first", tmp_path / "as-many", tmp_path / "more"
    assert train_on(2, index=train, out=first, batch_size=16, stop_after=[1, 37]) == ""
    resume = first / "checkpoint"
    assert train_on(2, index=train, out=as_many, batch_size=16, resume=resume) == ""
    prove_exact(train, 2, first, as_many)
    assert train_on(3, index=train, out=more, batch_size=10, resume=resume) == ""
    prove_exact(train, 2, first, more)
