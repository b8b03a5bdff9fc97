"""How Lightning, Accelerate and torch move batches of a Loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shards

import shardwise
from shardwise import columns

torch = needs("torch")


@pytest.fixture
def batch(tmp_path: Path) -> shardwise.Batch:
    write_shards(tmp_path, [20])
    shardwise.index(tmp_path / "train.idx", tmp_path, threads=0)
    loader = shardwise.Loader(
        shardwise.open(tmp_path / "train.idx"),
        columns=[columns.integer("cls"), columns.bytes("bin")],
        order=shardwise.Order("sequential"),
        batch_size=10,
    )
    made = loader.next()
    assert made is not None
    return made


def require_moved(moved: Any, device: str) -> None:
    assert list(moved) == ["cls", "bin"]
    assert moved["cls"].device.type == moved["bin"].values.device.type == device
    assert moved["cls"].shape == (10,) and len(moved["bin"]) == 10
    if device == "cpu":
        assert moved["cls"].tolist() == list(range(10))
        assert bytes(moved["bin"][3].numpy()) == b"\3" * 4


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_lightning_moves_a_batch(batch: shardwise.Batch, device: str) -> None:
    lightning = needs("lightning")
    apply_func = needs("lightning.fabric.utilities.apply_func")
    moved = apply_func.move_data_to_device(batch, torch.device(device))
    require_moved(moved, device)
    require_moved(apply_func.move_data_to_device(moved, torch.device(device)), device)
    hooks = lightning.LightningModule()
    require_moved(hooks.transfer_batch_to_device(batch, torch.device(device), 0), device)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_accelerate_moves_a_batch(batch: shardwise.Batch, device: str, non_blocking: bool) -> None:
    operations = needs("accelerate.utils.operations")
    moved = operations.send_to_device(batch, torch.device(device), non_blocking=non_blocking)
    require_moved(moved, device)
    require_moved(operations.send_to_device(moved, torch.device(device)), device)
    assert operations.find_batch_size(moved) == 10


@pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`")
@pytest.mark.parametrize("names", [["cls", "bin"], ["bin", "cls"]])
def test_lightning_finds_the_size_of_a_batch(batch: shardwise.Batch, names: list[str]) -> None:
    data = needs("lightning.pytorch.utilities.data")
    moved = batch.to("cpu")
    ordered = {name: moved[name] for name in names}
    assert data.extract_batch_size(ordered) == data.extract_batch_size(moved) == 10
    assert [row.shape for row in moved["bin"]] == [row.shape for row in batch["bin"]]
