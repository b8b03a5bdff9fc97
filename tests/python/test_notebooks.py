"""What shells and notebooks show, and complete."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shard

import shardwise
from shardwise import Loader, Order, Sampler, columns


def test_representations_say_what_a_thing_is_made_of(ds: shardwise.Dataset, tmp_path: Path) -> None:
    order = Order("sequential")
    sampler = Sampler(ds, order, rank=1, world_size=4)
    audit = shardwise.Audit(sampler)
    audit.add(sampler)
    loader = Loader(ds, columns=[columns.integer("cls"), columns.bytes("bin")], order=order)
    both = Loader(ds, columns=[columns.key()], global_batch_size=64, order=order)
    cache = shardwise.ShardCache(str(tmp_path / "cache"), budget_bytes=1000)
    assert repr(ds) == f"<shardwise.Dataset: 103 samples of {ds.path!r}, fields 'bin', 'cls'>"
    assert repr(sampler) == (
        f"<shardwise.Sampler: rank 1 of 4, epoch 0, 26 of 103 samples, {order!r}>"
    )
    assert repr(audit) == "<shardwise.Audit of 26 delivered samples>"
    assert repr(loader) == (
        f"<shardwise.Loader: columns 'cls' int64, 'bin' uint8, batches of 32, {order!r}, over {ds!r}>"
    )
    assert "batches of 64 over all ranks" in repr(both)
    assert repr(cache) == f"<shardwise.ShardCache {str(tmp_path / 'cache')!r}: 0 of 1000 bytes>"


def test_an_index_without_fields_has_a_representation(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("a", {"x'\"<": b"1"})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    ds = shardwise.open(tmp_path / "a.idx")
    assert "fields \"x'\\\"<\"" in repr(ds) or "fields 'x\\'\"<'" in repr(ds)
    assert repr(ds[:0]).startswith("<shardwise.Dataset: 0 samples (a view) of")
    assert "x&#x27;&quot;&lt;" in ds[0]._repr_html_()  # type: ignore[attr-defined]


def test_keys_are_completed(ds: shardwise.Dataset) -> None:
    sample: Any = ds[0]
    assert sample._ipython_key_completions_() == ["bin", "cls"]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_notebook_shows_the_picture_of_a_sample(tmp_path: Path, kind: str) -> None:
    image = needs("PIL.Image")
    data = io.BytesIO()
    image.new("RGB", (4, 3), (255, 0, 0)).save(data, kind)
    fields = {kind.lower(): data.getvalue(), "txt": b"a <b> & c", "cls": b"7", "bin": b"\0\1"}
    write_shard(tmp_path / "a.tar", [("k", fields)])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    sample: Any = shardwise.open(tmp_path / "a.idx")[0]
    shown = sample._repr_html_()
    assert f'src="data:image/{kind.lower()};base64,' in shown
    assert "a &lt;b&gt; &amp; c" in shown and ">7<" in shown and "2 bytes" in shown


def test_what_is_no_picture_is_not_shown_as_one(tmp_path: Path) -> None:
    fields = {"png": b"<script>", "jpg": b"\xff\xd8\xff" + bytes(5 << 20), "txt": b"x" * 10_000}
    write_shard(tmp_path / "a.tar", [("k<", fields)])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    sample: Any = shardwise.open(tmp_path / "a.idx")[0]
    shown = sample._repr_html_()
    assert "<script>" not in shown and "<img" not in shown and "k&lt;" in shown
    assert len(shown) < 1500 and " ..." in shown


def test_a_notebook_shows_a_proof(ds: shardwise.Dataset) -> None:
    loader = Loader(ds, columns=[columns.key()], order=Order("sequential"))
    for _ in loader:
        pass
    proof: Any = loader.prove()
    assert proof == "epoch 0: 103 samples, each exactly once: proven"
    assert "103 samples" in proof._repr_html_()
    assert pickle.loads(pickle.dumps(proof)) == proof and json.dumps(proof) == f'"{proof}"'
    audit = shardwise.Audit(Sampler(ds))
    audit.add(range(103))
    assert audit.prove(Sampler(ds))._repr_html_()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("what", "first", "default"),
    [
        ("Sampler", "data", ("batch_size", 1)),
        ("Order", "kind", ("seed", 0)),
        ("ShardCache", "directory", ("retry_for", 900.0)),
        ("Audit", "sampler", None),
        ("Loader", "data", ("batch_size", 32)),
        ("open", "source", None),
    ],
)
def test_signatures_are_known(what: str, first: str, default: Any) -> None:
    parameters = inspect.signature(getattr(shardwise, what)).parameters
    assert next(iter(parameters)) == first
    if default is not None:
        assert parameters[default[0]].default == default[1]


def test_names_are_completed_without_imports() -> None:
    script = """
import sys
import shardwise
names = dir(shardwise)
assert {"Loader", "columns", "torch", "webdataset", "wids", "grain", "ray", "open"} <= set(names)
assert not {"TYPE_CHECKING", "annotations", "importlib", "building"} & set(names)
assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
heavy = {"torch", "numpy", "ray", "grain", "shardwise.loader", "shardwise.torch", "inspect"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
try:
    shardwise.grain
except AttributeError as error:
    assert "import shardwise.grain" in str(error)
for name in {*names} - {"grain", "ray", "torch", "webdataset", "wids"}:
    getattr(shardwise, name)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_progress_bar_after_a_resume(ds: shardwise.Dataset) -> None:
    made = [columns.key()]
    loader = Loader(ds, columns=made, batch_size=10)
    for _ in range(4):
        loader.next()
    again = Loader(ds, columns=made, batch_size=10)
    again.load_state_dict(loader.state_dict())
    # tqdm(loader, initial=len(loader) - loader.steps_left)
    done = len(again) - again.steps_left
    assert (done, len(again)) == (4, 11)
    assert done + sum(1 for _ in again) == len(again)


def test_a_time_line_is_written(ds: shardwise.Dataset, tmp_path: Path) -> None:
    loader = Loader(ds, columns=[columns.bytes("bin")], batch_size=10)
    with loader.trace(tmp_path / "trace.json"):
        assert sum(len(batch) for batch in loader) == 103
    events = json.loads((tmp_path / "trace.json").read_text())
    spans = [event for event in events if event["ph"] == "X"]
    assert {"plan batch", "load samples", "collate batch"} <= {event["name"] for event in spans}
    loaded = [event for event in spans if event["name"] == "load samples"]
    assert sum(event["args"]["samples"] for event in loaded) == 103
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    with loader.trace(tmp_path / "none.json"):
        pass
    assert not [e for e in json.loads((tmp_path / "none.json").read_text()) if e["ph"] == "X"]


def test_the_profiler_of_torch_shows_the_loader(ds: shardwise.Dataset) -> None:
    torch = needs("torch")
    loader = Loader(ds, columns=[columns.bytes("bin")], batch_size=10)
    loader.next()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            loader.next()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["shardwise.Loader.next"] == 3
