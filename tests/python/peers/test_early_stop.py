"""Ranks of plain torch.distributed that stop together, and evaluation results that do not depend on
the number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from peer_runs import NUM_SAMPLES, make_index, torchrun

import shardwise

torch = needs("torch")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """The results of early_stop_run.py on each rank, by the number of ranks."""
    index = make_index(tmp_path_factory.mktemp("data"))
    all_runs = {}
    for size in (1, 2):
        out = tmp_path_factory.mktemp("runs") / str(size)
        assert torchrun("early_stop_run.py", size, index=index, out=out) == ""
        paths = [out / f"found-{rank}-{size}.json" for rank in range(size)]
        all_runs[size] = [json.loads(path.read_text()) for path in paths]
    all_runs[0] = [{"index": str(index)}]
    return all_runs


@pytest.mark.parametrize("size", [1, 2])
def test_a_signal_on_one_rank_ends_the_epoch_on_all(found: Any, size: int) -> None:
    for rank in found[size]:
        stopped = rank["with_a_loader"]
        assert (stopped["steps"], stopped["exit"], stopped["left"]) == (5, 128 + 15, [])
        assert f"{NUM_SAMPLES - 5 * 16 * size:,} " in stopped["said"]
        assert stopped["state"] == found[size][0]["with_a_loader"]["state"]
    loader = shardwise.Loader(
        shardwise.open(found[0][0]["index"]),
        columns=[shardwise.columns.integer("cls")],
        order=shardwise.Order(seed=17),
        ranks=None,
    )
    loader.load_state_dict(stopped["state"])
    assert sum(len(batch) for batch in loader) == NUM_SAMPLES - 5 * 16 * size
    assert "each exactly once" in loader.prove()


@pytest.mark.parametrize("size", [1, 2])
def test_a_figure_of_one_rank_ends_the_epoch_of_a_dataloader(found: Any, size: int) -> None:
    for rank in found[size]:
        stopped = rank["with_a_dataloader"]
        assert (stopped["steps"], stopped["left"]) == (4, 0)
        assert f"{NUM_SAMPLES - 4 * 16 * size:,} " in stopped["said"]
        assert stopped["token"] == found[size][0]["with_a_dataloader"]["token"]


def test_gradients_are_those_of_the_mean_over_all_samples(found: Any) -> None:
    for size in (1, 2):
        for rank in found[size]:
            for way, gradients in rank["gradients"].items():
                expected = found[1][0]["gradients"][f"plain {way.split()[1]}"]
                for own, other in zip(gradients, expected, strict=True):
                    torch.testing.assert_close(torch.tensor(own), torch.tensor(other))
        for way in ("plain 7", "plain 1"):
            plain = [rank["gradients"][way] for rank in found[size]]
            assert all(own == plain[0] for own in plain)


def test_an_evaluation_is_bitwise_equal_on_any_number_of_ranks(found: Any) -> None:
    expected = found[1][0]["evaluation"]
    assert expected["loss"][1] == expected["right"][1] == NUM_SAMPLES
    assert all(rank["evaluation"] == expected for rank in found[2])
