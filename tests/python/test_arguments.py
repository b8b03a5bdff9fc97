"""Invalid arguments: wrong types, wrong values, and common mistakes."""

from __future__ import annotations

import array
import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs

import shardwise
from shardwise import Audit, Order, Sampler, _core, errors


def test_an_index_named_after_its_shards_is_refused(tmp_path: Path, shards: Path) -> None:
    path = tmp_path / "x.idx"
    with pytest.raises(errors.InvalidArgument, match="output=.*name the index first: index.*x.idx"):
        shardwise.index(shards / "train-000000.tar", path)
    assert not path.exists()


def test_numbers_that_are_out_of_range_are_named(
    tmp_path: Path, shards: Path, index: Path
) -> None:
    for call in (
        lambda: shardwise.open(index, threads=-1),
        lambda: shardwise.index(tmp_path / "new.idx", shards, threads=-1),
        lambda: shardwise.update(index, threads=-1),
        lambda: shardwise.verify(index, threads=-1),
    ):
        with pytest.raises(errors.InvalidArgument, match="threads=-1; give a whole number, 0 or"):
            call()
    with pytest.raises(errors.InvalidArgument, match="max_open_shards=-1; give a whole number"):
        shardwise.open(index, max_open_shards=-1)
    with pytest.raises(errors.InvalidArgument, match="max_samples=-1; give a whole number"):
        shardwise.ShardWriter(tmp_path / "new-%d.tar", max_samples=-1)
    for seed in (-1, 2**64):
        with pytest.raises(TypeError, match=f"seed={seed}; give a whole number from 0 to 2.64 - 1"):
            Order(seed=seed)
    for number in (1.0, None):
        with pytest.raises(TypeError, match="indexed by whole numbers, slices and lists"):
            shardwise.open(index)[number]  # type: ignore[call-overload]


def test_one_name_is_no_list_of_columns(tmp_path: Path, shards: Path, index: Path) -> None:
    for call in (
        lambda: shardwise.index(tmp_path / "new.idx", shards, columns="cls"),
        lambda: shardwise.open(index, columns="cls"),
        lambda: shardwise.ShardWriter(
            tmp_path / "new-%d.tar",
            columns="cls",  # type: ignore[arg-type]
        ),
    ):
        text = r"'cls'; write \['cls'\]"
        with pytest.raises(errors.InvalidArgument, match=text):
            call()
    assert not (tmp_path / "new.idx").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [("a\0b", r"NUL character: '.*a\\x00b"), ("\udcff", "the path is not UTF-8")],
)
def test_paths_that_no_file_can_have_are_named(tmp_path: Path, name: str, text: str) -> None:
    path = str(tmp_path / name)
    for call in (
        lambda: shardwise.open(path),
        lambda: shardwise.open(tmp_path, cache=path),
        lambda: shardwise.open(tmp_path, index_directory=path),
        lambda: shardwise.index(path, tmp_path),
        lambda: shardwise.index(tmp_path / "i.idx", path),
        lambda: shardwise.verify(path),
        lambda: shardwise.ShardWriter(path + "%d.tar"),
        lambda: shardwise.TarWriter(path),
        lambda: shardwise.pack(tmp_path / "%d.tar", files=path),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            call()
    assert os.listdir(tmp_path) == []


def test_an_empty_path_is_refused(tmp_path: Path) -> None:
    """An empty path usually comes from a variable that is not set. It does not mean the current
    folder, whose path is "."."""
    for call in (
        lambda: shardwise.open(""),
        lambda: shardwise.open([str(tmp_path), ""]),
        lambda: shardwise.index(tmp_path / "i.idx", ""),
        lambda: shardwise.index("", tmp_path),
        lambda: shardwise.verify(""),
    ):
        with pytest.raises(errors.InvalidArgument, match="empty"):
            call()
    assert os.listdir(tmp_path) == []


def test_the_cache_takes_no_path_up_to_a_nul_only(tmp_path: Path) -> None:
    path = str(tmp_path / "c\0d")
    with pytest.raises(errors.InvalidArgument, match=r"has a NUL character: '.*c\\x00d'"):
        shardwise.ShardCache(path, 1 << 20)
    assert os.listdir(tmp_path) == []
    for option in ("metrics_file", "bearer_token_file", "netrc_file", "ca_file"):
        with pytest.raises(errors.InvalidArgument, match="has a NUL character"):
            shardwise.ShardCache(str(tmp_path / "cache"), 1 << 20, **{option: path})
    assert not (tmp_path / "c").exists()


def test_sources_may_stand_in_a_list(tmp_path: Path, shards: Path) -> None:
    tars = sorted(shards.glob("*.tar"))
    shardwise.index(tmp_path / "one.idx", *tars, threads=0)
    shardwise.index(tmp_path / "list.idx", tars[:1], tuple(tars[1:]), threads=0)
    fingerprint = shardwise.open(tmp_path / "one.idx").fingerprint
    assert shardwise.open(tmp_path / "list.idx").fingerprint == fingerprint
    for i in (1, 2):
        shardwise.index(tmp_path / f"{i}.idx", tars, part=(i, 2), threads=0)
    shardwise.merge(tmp_path / "merged.idx", [tmp_path / "2.idx", tmp_path / "1.idx"])
    assert shardwise.open(tmp_path / "merged.idx").fingerprint == fingerprint
    with pytest.raises(TypeError):
        shardwise.index(tmp_path / "new.idx", [tars])  # type: ignore[list-item]


def test_policies_are_a_word_or_a_dict(tmp_path: Path, shards: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"on_bad=\[\]"):
        shardwise.index(tmp_path / "new.idx", shards, on_bad=[])  # type: ignore[arg-type]


def test_nothing_equals_none(ds: shardwise.Dataset) -> None:
    values: list[Any] = [ds[0], Order()]
    for value in values:
        assert not value == None  # noqa: E711
        assert value != None  # noqa: E711
        assert value not in [None]


def test_orders_that_are_equal_have_one_hash() -> None:
    orders = [Order("chunked", seed=7, skip=[3]), Order(seed=7, skip=[3]), Order(seed=8, skip=[3])]
    assert hash(orders[0]) == hash(orders[1])
    assert len(set(orders)) == 2


# All calls that take numbers of samples.
TAKERS: dict[str, Any] = {
    "[]": lambda ds, numbers: [sample.index for sample in ds[numbers]],
    "select": lambda ds, numbers: [s.index for s in ds.select(numbers)],
    "samples": lambda ds, numbers: [sample.index for sample in ds.samples(numbers)],
    "sample_keys": lambda ds, numbers: ds.sample_keys(numbers),
    "column": lambda ds, numbers: ds.column("cls", numbers),
    "sizes": lambda ds, numbers: ds.sizes("bin", numbers),
    "gather": lambda ds, numbers: ds.gather(numbers, "bin"),
    "skip": lambda ds, numbers: Order(skip=numbers),
    "Audit.add": lambda ds, numbers: Audit(Sampler(ds)).add(numbers),
}
# All calls that take one number of a sample.
ONE_TAKERS: dict[str, Any] = {
    "[]": lambda ds, number: ds[number],
    "number_in_index": lambda ds, number: ds.number_in_index(number),
    "Sampler": lambda ds, number: Sampler(ds)[number],
    "Audit.add": lambda ds, number: Audit(Sampler(ds)).add(number),
    "mix": lambda ds, number: shardwise.mix([ds])[number],
}


@pytest.mark.parametrize(
    "weights", [{0: 0.7, 1: 0.3}, {"a": 0.7, "b": 0.3}, {0.7, 0.3}, "12", b"12", [0.7, "x"], [[1]]]
)
def test_weights_without_an_order_are_refused(ds: shardwise.Dataset, weights: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="weights=.*; give a list"):
        shardwise.mix([ds, ds], weights=weights)


def masks(size: int) -> dict[str, Any]:
    """Returns the same mask in all forms that programs use."""
    mask = np.arange(size) % 2 == 0
    pandas = needs("pandas")
    torch = needs("torch")
    return {
        "list": mask.tolist(),
        "tuple": tuple(mask.tolist()),
        "numpy": mask,
        "short": mask[:3],
        "objects": mask.astype(object),
        "numpy's bools": list(mask),
        "memoryview": memoryview(mask),
        "pandas": pandas.Series(mask),
        "pandas with NA": pandas.array([True, None, False], dtype="boolean"),
        "torch": torch.tensor(mask),
        "torch's bools": list(torch.tensor(mask)),
        "one": torch.tensor([True]),
        "numbers and bools": [0, 1, True],
    }


@pytest.mark.parametrize("taker", TAKERS)
def test_a_mask_of_bools_is_no_list_of_numbers(ds: shardwise.Dataset, taker: str) -> None:
    for form, mask in masks(len(ds)).items():
        with pytest.raises(TypeError, match=r"not bools; .* numpy.flatnonzero\(mask\)"):
            TAKERS[taker](ds, mask)
            pytest.fail(form)
    TAKERS[taker](ds, np.flatnonzero(np.arange(len(ds)) % 2 == 0))


@pytest.mark.parametrize("taker", TAKERS)
def test_a_masked_array_is_no_list_of_numbers(ds: shardwise.Dataset, taker: str) -> None:
    masked = np.ma.array([1, 3], mask=[False, True])
    for numbers in (masked, np.ma.array([1, 3]), list(masked), masked.astype(np.uint8)):
        with pytest.raises(TypeError, match=r"masked array, .* compressed\(\)"):
            TAKERS[taker](ds, numbers)
    TAKERS[taker](ds, masked.compressed())


@pytest.mark.parametrize("taker", ONE_TAKERS)
def test_a_masked_number_is_no_number(ds: shardwise.Dataset, taker: str) -> None:
    for one in (np.ma.masked, np.ma.array(1)):
        with pytest.raises(TypeError, match="masked array"):
            ONE_TAKERS[taker](ds, one)


@pytest.mark.parametrize("taker", ONE_TAKERS)
def test_a_bool_is_no_number(ds: shardwise.Dataset, taker: str) -> None:
    torch = needs("torch")
    for one in (True, np.True_, np.array(True), torch.tensor(True)):
        with pytest.raises(TypeError, match="not bools"):
            ONE_TAKERS[taker](ds, one)
    for one in (1, np.int64(1), np.array(1), torch.tensor(1)):
        ONE_TAKERS[taker](ds, one)


def test_numbers_come_in_any_form(ds: shardwise.Dataset) -> None:
    torch = needs("torch")
    pandas = needs("pandas")
    for numbers in (
        *([3], (3,), range(3, 4), np.array([3]), np.array([3], np.uint8), memoryview(b"\3")),
        *(torch.tensor([3]), pandas.Series([3]), list(np.array([3])), array.array("q", [3])),
    ):
        for taker in ("[]", "select", "samples"):
            assert TAKERS[taker](ds, numbers) == ([3] if taker == "samples" else [0])
    for numbers in (np.array([2.0]), [1.5], np.array([[3]]), "3", ["a", 3]):
        for taker in ("samples", "sample_keys", "skip"):
            with pytest.raises(TypeError):
                TAKERS[taker](ds, numbers)


def test_bytes_are_no_numbers(ds: shardwise.Dataset) -> None:
    with pytest.raises(TypeError, match="get\\(\\)"):
        ds[b"\1"]  # type: ignore[call-overload]


def test_fields_and_keys_are_named_by_str(ds: shardwise.Dataset) -> None:
    field: Any = 3
    for call in (lambda: ds[0][field], lambda: ds[0].numpy(field)):
        with pytest.raises(TypeError, match="str, not <class 'int'>"):
            call()


def test_an_audit_takes_numbers_in_any_form() -> None:
    sampler = Sampler(6)
    audit = Audit(sampler)
    for numbers in (0, np.int64(1), np.array([2, 3]), [4], (np.uint8(5),)):
        audit.add(numbers)
    assert audit.prove(sampler) == "epoch 0: 6 samples, each exactly once: proven"
    before = audit.words()
    for wrong in ("x", [1.5], np.array([1.5]), None, [None], [3, 1.5], [3, "4"]):
        with pytest.raises(TypeError):
            audit.add(wrong)
        assert audit.words() == before
    for number in (-1, [-1], np.array([-1]), [3, -1]):
        with pytest.raises(errors.OutOfRange, match="no such sample: sample -1"):
            audit.add(number)
        assert audit.words() == before


def test_a_state_with_a_wrong_entry_is_named() -> None:
    state = iter(Sampler(6)).state_dict()
    for name, wrong in (("epoch", None), ("position", "3"), ("rank", -1), ("start", 5)):
        with pytest.raises(errors.InvalidArgument, match=f"state .*: entry {name} is"):
            iter(Sampler(6)).load_state_dict({**state, name: wrong})


def test_a_part_is_a_number_and_how_many_there_are(tmp_path: Path, shards: Path) -> None:
    for i in (1, 2, 3):
        shardwise.index(tmp_path / f"{i}.idx", shards, columns=["cls"], part=(i, 3), threads=0)
    whole = shardwise.merge(tmp_path / "whole.idx", *(tmp_path / f"{i}.idx" for i in (3, 1, 2)))
    alone = shardwise.index(tmp_path / "alone.idx", shards, columns=["cls"], threads=0)
    assert whole.fingerprint == alone.fingerprint
    assert whole.num_samples == 103
    with pytest.raises(shardwise.errors.InvalidArgument, match="from 1 to"):
        shardwise.index(tmp_path / "4.idx", shards, part=(4, 3), threads=0)
    with pytest.raises(shardwise.errors.InvalidArgument, match="not valid: part=3; .*from 1"):
        shardwise.index(tmp_path / "4.idx", shards, part=3, threads=0)  # type: ignore[arg-type]


def test_a_tilde_is_the_home_folder(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every name of a file, a leading ~ means the home folder if it is alone or before a slash.
    ~name is an ordinary file."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    shards.rename(home / "data")
    (home / "list.txt").write_text("~/data/train-000000.tar\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    monkeypatch.chdir(work)
    assert shardwise.index("~/x.idx", "~/data", threads=0).num_samples == 103
    assert len(shardwise.open("~/x.idx", root="~/data", cache="~/cache")) == 103
    assert len(shardwise.open("~/data", index_directory="~/kept")) == 103
    assert len(shardwise.open("@~/list.txt")) == 40
    assert len(shardwise.open(Path("~/x.idx"))) == 103
    assert shardwise.query("~/x.idx", "SELECT count(*) FROM samples").rows == [(103,)]
    with shardwise.ShardWriter("~/new-%06d.tar", index="~/new.idx") as writer:
        writer.write({"__key__": "a", "txt": "text"})
    cache = shardwise.ShardCache("~/cache", netrc_file="~/netrc")
    assert cache.directory == str(home / "cache")
    assert len(pickle.loads(pickle.dumps(shardwise.open("~/x.idx", cache=cache)))) == 103
    assert list(work.iterdir()) == []
    for made in ("x.idx", "kept", "new-000000.tar", "new.idx", "cache/locks"):
        assert (home / made).exists(), made
    shardwise.index("~name.idx", "~/data", threads=0)
    assert (work / "~name.idx").exists()


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/a b/{x}.tar", "/a b/{x}.tar"),
        ("https://me:pw@host/a.tar?sig=pw&b", "https://host/a.tar?sig=***&***"),
        ("s3://bucket/a.tar", "s3://bucket/a.tar"),
        ("pipe:curl https://me:pw@host", "pipe:curl ***"),
    ],
)
def test_what_is_secret_in_a_url_is_not_shown(place: str, shown: str) -> None:
    assert _core.without_secrets(place) == shown


def test_an_unknown_option_is_answered_with_the_nearest(ds: shardwise.Dataset) -> None:
    """Mistypes every option of the public classes and functions. Also tests a word that no option
    resembles."""
    torch = needs("shardwise.torch")
    wids = needs("shardwise.wids")
    transforms = shardwise.transforms
    takers: list[Any] = [
        *(Order, Sampler, shardwise.ShardCache, shardwise.Loader, shardwise.ByLength, shardwise.Mixup),
        *(shardwise.EarlyStop, shardwise.StopGuard, shardwise.DeviceCopier, shardwise.ranks.Reducer),
        *(shardwise.ShardWriter, shardwise.TarWriter, shardwise.open, shardwise.pack, shardwise.mix),
        *(shardwise.explain, shardwise.when, shardwise.columns.image, shardwise.columns.decoded),
        *(transforms.ImageTransform, transforms.RandomResizedCrop, transforms.VideoClip),
        *(torch.DistributedSampler, torch.ShardedSampler, torch.BatchSampler, wids.ShardListDataset),
    ]
    first: dict[Any, Any] = {Order: "chunked", shardwise.ShardCache: "cache"}
    for taker in takers:
        given = first.get(taker, ds)
        said = rf"^{taker.__name__}\(\) has no option "
        options = [
            parameter.name
            for parameter in inspect.signature(taker).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        assert options
        for option in options:
            with pytest.raises(TypeError, match=rf"{said}'{option}q'; did you mean '{option}'\?$"):
                taker(given, **{option + "q": 1})
        with pytest.raises(TypeError, match=rf"{said}'qqq'; choose from .*{options[-1]}"):
            taker(given, qqq=1)
    with pytest.raises(TypeError, match=r"^ShardedSampler\(\) has no option 'rnk'; did you mean 'rank'"):
        torch.ShardedSampler(ds, rnk=1)
    with pytest.raises(TypeError, match=r"^Loader\(\) has no option 'num_workers'; give threads="):
        shardwise.Loader(ds, num_workers=1)  # type: ignore[call-arg]
