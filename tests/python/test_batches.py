"""Batches as mappings, and on devices of torch."""

from __future__ import annotations

import copy
import json
import pickle
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from conftest import needs

import shardwise
from shardwise import DeviceCopier, Loader, Order, columns, errors

torch = needs("torch")


def loader_of(ds: shardwise.Dataset, **options: Any) -> Loader:
    def notes(sample: shardwise.Sample, random: int) -> bytes:
        return json.dumps({"cls": sample.integer("cls"), "ü": [None]}).encode()

    return Loader(
        ds,
        columns=[
            columns.integer("cls"),
            columns.bytes("bin"),
            columns.function("note", "uint8", None, notes),
        ],
        order=Order("sequential"),
        batch_size=10,
        **options,
    )


def first_of(ds: shardwise.Dataset, **options: Any) -> shardwise.Batch:
    batch = loader_of(ds, **options).next()
    assert batch is not None
    return batch


def test_a_batch_is_a_mapping_of_columns(ds: shardwise.Dataset) -> None:
    batch: Any = first_of(ds)
    names = ["cls", "bin", "note"]
    assert isinstance(batch, Mapping)
    assert list(batch) == batch.keys() == batch._ipython_key_completions_() == names
    assert [name for name, _ in batch.items()] == names
    assert [len(value) for value in batch.values()] == [10] * 3
    assert all(name in batch for name in names) and "no" not in batch and 3 not in batch
    assert batch.get("cls").tolist() == list(range(10))
    assert batch.get("no") is None and batch.get("no", 7) == 7
    assert list(dict(batch)) == list({**batch}) == names
    assert len(batch) == 10  # rows, as of a table
    with pytest.raises(errors.NotFound, match="note"):
        batch["no"]


def test_what_rebuilds_a_mapping_by_its_type_gets_a_dict(ds: shardwise.Dataset) -> None:
    batch: Any = first_of(ds)
    rebuilt = type(batch)({name: len(value) for name, value in batch.items()})
    assert rebuilt == {"cls": 10, "bin": 10, "note": 10} and type(rebuilt) is dict
    with pytest.raises(TypeError):
        type(batch)(3)


def test_values_are_tensors_where_the_loader_gives_them(ds: shardwise.Dataset) -> None:
    batch: Any = first_of(ds, arrays="torch")
    moved = {name: value.to("meta") for name, value in batch.items()}
    assert moved["cls"].is_meta and moved["bin"].values.is_meta
    assert torch.equal(batch["cls"], torch.arange(10)) and torch.is_tensor(batch.get("cls"))
    assert batch["cls"].data_ptr() == batch.torch("cls").data_ptr()
    assert isinstance(first_of(ds)["cls"], np.ndarray)
    with pytest.raises(errors.InvalidArgument, match="arrays='jax'"):
        first_of(ds, arrays="jax")


def test_rows_of_json_are_parsed(ds: shardwise.Dataset) -> None:
    batch = first_of(ds)
    assert batch.json("note") == [{"cls": i, "ü": [None]} for i in range(10)]
    with pytest.raises(json.JSONDecodeError):
        batch.json("bin")
    with pytest.raises(errors.InvalidArgument, match="not bytes"):
        batch.json("cls")


def test_a_batch_moves_to_a_device_with_its_ragged_columns(ds: shardwise.Dataset) -> None:
    batch = first_of(ds)
    here, there = batch.to("cpu"), batch.to(torch.device("meta"), non_blocking=True)
    assert here["cls"].data_ptr() == batch["cls"].ctypes.data
    assert list(here) == list(there) == batch.keys()
    assert bytes(here["bin"][3].numpy()) == b"\3" * 4
    assert there["cls"].is_meta and there["bin"].values.is_meta and there["bin"].offsets.is_meta
    assert there["cls"].shape == (10,) and len(there["bin"]) == 10
    ragged = batch["bin"].to("cpu")  # of NumPy
    assert torch.equal(ragged.values, here["bin"].values)
    assert ragged.values.data_ptr() == here["bin"].values.data_ptr()


def test_pinned_memory_needs_a_device(ds: shardwise.Dataset) -> None:
    batch: Any = first_of(ds)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            batch.pin_memory()
        return
    pinned = batch.pin_memory()
    assert pinned["cls"].is_pinned() and pinned["bin"].values.is_pinned()
    assert pinned["cls"].tolist() == list(range(10))


def test_a_moved_batch_has_what_a_batch_has(ds: shardwise.Dataset) -> None:
    batch = first_of(ds)
    moved: Any = batch.to("meta")
    assert isinstance(moved, Mapping) and isinstance(moved, shardwise.DeviceBatch)
    own = {name for name in dir(batch) if not name.startswith("__")}
    assert own <= set(dir(moved))
    assert len(moved) == 10 and list(moved) == moved.keys() == batch.keys()
    assert list(moved.samples) == list(moved.positions) == list(range(10))
    assert moved.bytes("note") == batch.bytes("note") and moved.text("note") == batch.text("note")
    assert moved.json("note") == batch.json("note")
    assert moved.torch("cls") is moved["cls"] is moved.get("cls") is dict(moved)["cls"]
    assert moved.values() == list(moved.tensors().values()) and moved.get("no", 7) == 7
    assert "cls" in moved and "no" not in moved
    assert type(moved)({"cls": 1}) == {"cls": 1}
    assert repr(moved).startswith("<shardwise.DeviceBatch on meta of <shardwise.Batch of 10 rows:")
    with pytest.raises(errors.NotFound, match="note"):
        moved["no"]


def test_a_moved_batch_copies_and_does_not_pickle(ds: shardwise.Dataset) -> None:
    moved = first_of(ds).to("cpu")
    copied = copy.copy(moved)
    assert type(copied) is shardwise.DeviceBatch and copied["cls"] is moved["cls"]
    with pytest.raises(TypeError, match="cannot pickle 'Batch' object"):
        pickle.dumps(moved)


def test_a_row_of_a_ragged_column_is_named_by_a_number(ds: shardwise.Dataset) -> None:
    ragged = first_of(ds)["bin"]
    assert bytes(ragged[np.int64(-1)]) == bytes(ragged[9])
    with pytest.raises(TypeError, match="integer"):
        ragged[1:3]


class FakeStreams:
    """The streams of a device whose copies end when the test says so."""

    done = False

    class Event:
        def record(self, stream: Any) -> None: ...

        def query(self) -> bool:
            return FakeStreams.done

        def synchronize(self) -> None:
            FakeStreams.done = True

    class Stream:
        def __init__(self, device: Any) -> None:
            self.waits = 0

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def wait_event(self, event: Any) -> None:
            self.waits += 1

    computing = Stream(None)

    def current_stream(self, device: Any) -> Any:
        return self.computing

    def stream(self, stream: Any) -> Any:
        return stream


@pytest.mark.parametrize("way", ["to", "to twice", "copier"])
def test_a_batch_is_kept_until_its_copies_are_done(
    ds: shardwise.Dataset, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    from shardwise import devices

    FakeStreams.done = False
    streams = FakeStreams()
    monkeypatch.setattr(devices, "_streams", lambda device: streams)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    copier = DeviceCopier("meta")
    batch = first_of(ds)
    dropped = weakref.ref(batch)
    here: Any = batch.to("cpu") if way == "to twice" else batch
    moved = copier.copy(batch) if way == "copier" else here.to("meta", non_blocking=True)
    bytes_of = moved["bin"].values
    del batch, here, moved
    assert bytes_of.is_meta and dropped() is not None
    if way == "copier":
        assert streams.computing.waits > 0
        copier.wait()
    FakeStreams.done = True
    first_of(ds).to("meta", non_blocking=True)
    assert dropped() is None
    devices._copies.clear()


def test_a_copier_for_the_cpu_copies_nothing(ds: shardwise.Dataset) -> None:
    batch = first_of(ds)
    copied = DeviceCopier("cpu").copy(batch)
    assert copied["cls"].data_ptr() == batch["cls"].ctypes.data
    with pytest.raises(errors.Unsupported, match="vulkan"):
        DeviceCopier("vulkan")


def test_a_batch_does_not_copy(ds: shardwise.Dataset) -> None:
    with pytest.raises(TypeError):
        copy.copy(first_of(ds))
