"""ShardListDataset: the content of samples, the valid lists, and refused lists."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import pickle
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import FileServer, in_threads, needs
import shardwise
from shardwise import _core
from shardwise.errors import InvalidArgument, Mismatch, NotFound, OutOfRange, VersionMismatch
from shardwise.wids import ShardListDataset, ShardListDatasetMulti
from wids_support import (  # noqa: F401
    own_folders,
    served,
    shards,
    write_descriptor,
    write_shards,
    write_tar,
)


def raw(shards: Any, **options: Any) -> ShardListDataset[dict[str, Any]]:
    return ShardListDataset(shards, **{"transformations": [], **options})


def number_of(sample: dict[str, Any]) -> int:
    return int(sample[".cls"].getvalue())


def test_a_sample_is_a_dict_of_streams_with_the_extras_of_wids(shards: list[Any]) -> None:
    sample = raw([{**shard, "dataset": "x"} for shard in shards])[9]
    assert isinstance(sample, dict)
    assert list(sample) == [
        ".bin",
        ".cls",
        "__key__",
        "__dataset__",
        "__index__",
        "__shard__",
        "__shardindex__",
    ]
    assert type(sample[".bin"]) is io.BytesIO
    assert sample[".bin"].read() == bytes([9]) * 10
    assert sample["__key__"] == "000009"
    assert sample["__dataset__"] == "x"
    assert sample["__index__"] == 9
    assert sample["__shard__"] == shards[1]["url"]
    assert sample["__shardindex__"] == 2
    assert raw(shards)[0]["__dataset__"] is None


def test_a_stream_may_be_written_to_and_harms_nothing(shards: list[Any]) -> None:
    dataset = raw(shards)
    dataset[3][".bin"].write(b"zzzz")
    assert dataset[3][".bin"].read() == bytes([3]) * 4


def test_samples_are_numbered_through_all_shards(shards: list[Any]) -> None:
    dataset = raw(shards)
    assert len(dataset) == dataset.total_length == 21
    assert dataset.lengths == [7, 5, 9]
    assert [number_of(sample) for sample in dataset] == list(range(21))
    assert number_of(dataset[-1]) == 20 and dataset[-1]["__index__"] == 20
    for number in (21, -22):
        with pytest.raises(OutOfRange, match=f"sample {number}.*21 samples") as raised:
            dataset[number]
        assert isinstance(raised.value, IndexError)


def test_lengths_add_up_as_an_array(shards: list[Any]) -> None:
    numpy = needs("numpy")
    dataset = raw(shards)
    assert dataset.cum_lengths.tolist() == [7, 12, 21]
    assert number_of(dataset[numpy.int64(12)]) == 12


def test_names_in_upper_case_answer_to_both_spellings(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.JPG", b"1"), ("a.Seg.PNG", b"2")])
    sample = raw([{"url": str(path), "nsamples": 1}])[0]
    for name in (".JPG", ".jpg", ".Jpg"):
        assert sample[name].read() == b"1" and name in sample
        sample[name].seek(0)
    assert sample.get(".Seg.PNG") is sample[".seg.png"]
    assert ".gif" not in sample and sample.get(".GIF", 3) == 3
    with pytest.raises(KeyError, match="GIF"):
        sample[".GIF"]
    assert pickle.loads(pickle.dumps(sample))[".JPG"].read() == b"1"
    assert sample.copy()[".JPG"] is sample[".jpg"]


def test_a_descriptor_is_a_path_a_url_or_a_stream(
    tmp_path: Path, shards: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [{**shard, "url": os.path.basename(shard["url"])} for shard in shards]
    path = write_descriptor(tmp_path / "shards" / "train.json", names, name="train")
    for source in (str(path), path, path.as_uri()):
        dataset = raw(source)
        assert dataset.dataset_name == dataset.spec["name"] == "train"
        assert number_of(dataset[20]) == 20
    assert raw(str(path)).base == str(tmp_path / "shards")
    assert raw(str(path))[0]["__shard__"] == shards[0]["url"]
    monkeypatch.chdir(tmp_path / "shards")
    assert len(raw(io.StringIO(path.read_text()))) == 21
    with open(path) as stream:
        assert len(raw(stream)) == 21
    assert raw("train.json").shards[0]["url"] == "train-000.tar"


def test_base_and_options_say_otherwise_than_the_descriptor(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "far" / "away", [2, 3])
    names = [{**shard, "url": os.path.basename(shard["url"])} for shard in shards]
    plain = write_descriptor(tmp_path / "a.json", names)
    assert len(raw(str(plain), base=str(tmp_path / "far" / "away"))) == 5
    assert len(raw(str(plain), options={"base": "far/away"})) == 5
    based = write_descriptor(tmp_path / "b.json", names, base="far/away")
    assert len(raw(str(based))) == 5
    assert len(raw(plain, base=tmp_path / "far" / "away")) == 5
    assert len(raw(plain, options={"base": Path("far/away")})) == 5
    one = raw(str(based), options={"shardlist": names[:1], "name": "other"})
    assert len(one) == 2 and one.dataset_name == "other"


def test_a_descriptor_may_refer_to_others(tmp_path: Path) -> None:
    a, b, c = (write_shards(tmp_path / name, [n]) for name, n in (("a", 2), ("b", 3), ("c", 4)))
    write_descriptor(tmp_path / "b" / "b.json", [{"url": "train-000.tar", "nsamples": 3}])
    path = write_descriptor(
        tmp_path / "all.json",
        a,
        datasets=[
            {"name": "B", "weight": 2, "source_url": "b/b.json"},
            {"name": "C", "base": "c", "shardlist": [{"url": "train-000.tar", "nsamples": 4}]},
        ],
    )
    dataset = raw(str(path))
    assert dataset.lengths == [2, 3, 4]
    assert [dataset[i]["__dataset__"] for i in (0, 2, 5)] == [None, "B", "C"]
    assert [shard["url"] for shard in dataset.shards] == [s[0]["url"] for s in (a, b, c)]
    assert dataset.shards[1]["weight"] == 2


def test_counts_that_lie_are_an_error_with_both_numbers(shards: list[Any]) -> None:
    shards[1]["nsamples"] = 6
    with pytest.raises(Mismatch, match=r"train-001.tar' has 5 samples, .* 6"):
        raw(shards)
    shards[1] = {**shards[1], "nsamples": 5, "filesize": 99}
    with pytest.raises(Mismatch, match=r"train-001.tar' has 20480 bytes, .* 99"):
        raw(shards)


def test_counts_are_believed_if_asked_for(
    shards: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shards[0]["nsamples"] = 3
    shards[1]["nsamples"] = 6
    dataset = raw(shards, claims="believe")
    assert dataset.lengths == [3, 6, 9]
    assert [number_of(dataset[i]) for i in (0, 2, 3, 7, 9)] == [0, 2, 7, 11, 12]
    with pytest.raises(Mismatch, match=r"sample 5 of .*train-001.tar', which has 5") as raised:
        dataset[8]
    assert not isinstance(raised.value, IndexError)  # an IndexError would silently end a loop
    monkeypatch.setenv("SHARDWISE_WIDS_CLAIMS", "believe")
    assert len(raw(shards)) == 18
    with pytest.raises(InvalidArgument, match="'check' or 'believe'"):
        raw(shards, claims="trust")


def test_a_shard_may_come_twice(shards: list[Any]) -> None:
    dataset = raw([shards[1], shards[0], shards[1]])
    assert [number_of(dataset[i]) for i in (0, 5, 12)] == [7, 0, 7]


def test_lists_that_are_none_are_refused(shards: list[Any], tmp_path: Path) -> None:
    for wrong, text in [
        ([], "at least one shard"),
        ([{"nsamples": 3}], r"shardlist\[0\] has no url"),
        ([{"url": "a.tar"}], "nsamples None"),
        ([{"url": "a.tar", "nsamples": -1}], "nsamples -1"),
    ]:
        with pytest.raises(InvalidArgument, match=text):
            raw(wrong)
    with pytest.raises(NotFound, match=r"no-such.tar"):
        raw([{"url": str(tmp_path / "no-such.tar"), "nsamples": 1}])
    with pytest.raises(InvalidArgument, match="lru_size=0"):
        raw(shards, lru_size=0)
    path = tmp_path / "x.json"
    for text, error, message in [
        ("{", InvalidArgument, "is not JSON"),
        ("[" * 100_000, InvalidArgument, "is not JSON"),
        ("[]", InvalidArgument, "not a JSON object"),
        ('{"shardlist": []}', VersionMismatch, "wids_version None"),
        ('{"wids_version": 1}', InvalidArgument, "names no shards"),
        ('{"wids_version": 1, "datasets": [{}]}', InvalidArgument, "no shardlist"),
        ('{"wids_version": 1, "datasets": [7]}', InvalidArgument, "datasets must be a list"),
        ('{"wids_version": 1, "datasets": null}', InvalidArgument, "datasets must be a list"),
        ('{"wids_version": 1, "datasets": [{"source_url": 7}]}', InvalidArgument, "source_url=7"),
        ('{"wids_version": 1, "shardlist": null}', InvalidArgument, "shardlist must be a list"),
        ('{"wids_version": 1, "base": 7}', InvalidArgument, "base=7; give a path or a URL"),
    ]:
        path.write_text(text)
        with pytest.raises(error, match=message):
            raw(str(path))


def test_a_descriptor_may_be_in_a_folder_of_any_name(tmp_path: Path) -> None:
    for name in ("run#3", "a?b;c", "two\nlines"):
        (shard,) = write_shards(tmp_path / name, [3])
        shard["url"] = Path(shard["url"]).name
        dataset = raw(str(write_descriptor(tmp_path / name / "x.json", [shard])))
        assert number_of(dataset[2]) == 2


def test_commands_are_not_run_unless_it_is_allowed(tmp_path: Path, shards: list[Any]) -> None:
    mark = tmp_path / "mark"
    piped = [{"url": f"pipe:sh -c 'touch {mark} && cat {shards[0]['url']}'", "nsamples": 7}]
    with pytest.raises(InvalidArgument, match="is a command.*allow_pipe=True"):
        raw(piped)
    assert not mark.exists()
    dataset = raw(piped, allow_pipe=True)
    assert [number_of(dataset[i]) for i in (6, 0)] == [6, 0]
    assert mark.exists()
    assert number_of(pickle.loads(pickle.dumps(dataset))[5]) == 5


def test_the_cache_shows_which_shards_were_used(shards: list[Any]) -> None:
    urls = [shard["url"] for shard in shards]
    dataset = raw(shards, lru_size=2)
    assert dataset.cache.lru.capacity == 2 and len(dataset.cache) == 0
    for number in (0, 8):
        dataset[number]
    assert list(dataset.cache.lru.keys()) == urls[:2]
    dataset[1]
    assert list(dataset.cache.lru) == [urls[1], urls[0]]
    dataset[12]
    assert list(dataset.cache.lru) == [urls[0], urls[2]]
    assert urls[1] not in dataset.cache.lru and urls[2] in dataset.cache.lru
    assert dataset.get_stats() == (4, 3)
    assert [len(shard) for shard in dataset.cache.lru.values()] == [7, 9]
    dataset.close()
    assert len(dataset.cache.lru) == 0
    assert number_of(dataset[20]) == 20


def test_a_reader_without_capacity_misses_each_access(shards: list[Any]) -> None:
    data = raw(shards).data
    for capacity, misses in ((0, 4), (1, 2)):
        reader = _core.WidsReader(data, dict, io.BytesIO, [(7, 0, 7, "a", None)] * 2, capacity)
        for number in (0, 1, 7, 8):
            reader[number]
        assert (reader.accesses, reader.misses) == (4, misses)
        assert len(reader.recent()) == capacity


def test_many_misses_are_warned_of(shards: list[Any]) -> None:
    dataset = raw(shards, lru_size=1)
    for i in range(60):
        dataset[0]
        dataset[20]
    assert dataset.get_stats() == (120, 120)
    with pytest.warns(UserWarning, match="120 of 120 samples"):
        dataset.check_cache_misses()


def test_get_shard_gives_the_shard_and_the_place_in_it(shards: list[Any]) -> None:
    dataset = raw(shards)
    shard, number, described = dataset.get_shard(9)
    assert (len(shard), number, described) == (5, 2, shards[1])
    assert os.path.exists(shard.path)
    sample = shard[number]
    assert sample[".cls"].read() == b"9" and sample["__key__"] == "000009"
    assert shard[-1]["__key__"] == "000011"
    with pytest.raises(OutOfRange, match="no sample 5"):
        shard[5]
    with pytest.raises(OutOfRange):
        dataset.get_shard(21)
    assert dataset.cache.get_shard(shards[0]["url"])[0]["__key__"] == "000000"


def test_transformations_are_chained(shards: list[Any]) -> None:
    dataset = raw(shards, transformations=number_of)
    assert dataset[5] == 5
    assert dataset.add_transform(lambda number: number * 2) is dataset
    assert dataset[5] == 10
    assert len(dataset.transformations) == 2
    with pytest.raises(InvalidArgument, match="transformations='JPEG'"):
        raw(shards, transformations="JPEG")
    assert ShardListDataset(shards)[4][".cls"] == 4
    assert ShardListDataset(shards, transformations=["PIL", dict.keys])[4] is not None


def test_a_pickled_dataset_is_a_reference(shards: list[Any], tmp_path: Path) -> None:
    dataset = raw(shards, lru_size=3, transformations=[number_of], dataset_name="mine")
    dataset.add_transform(float)
    dataset.extra = "kept"  # type: ignore[attr-defined]
    packed = pickle.dumps(dataset)
    assert len(packed) < 3000
    again = pickle.loads(packed)
    assert [again[i] for i in (0, 20)] == [0.0, 20.0]
    assert (again.extra, again.dataset_name, again.cache.lru.capacity) == ("kept", "mine", 3)

    write_shards(tmp_path / "other", [21])
    shardwise.index(dataset.data.path, tmp_path / "other", threads=0)
    with pytest.raises(Mismatch, match="pickled"):
        pickle.loads(packed)


def test_an_index_that_was_made_before_is_taken(shards: list[Any], tmp_path: Path) -> None:
    shardwise.index(tmp_path / "all.idx", tmp_path / "shards", threads=0)
    dataset = raw(shards[1:], index=tmp_path / "all.idx")
    assert len(dataset) == 14 and number_of(dataset[0]) == 7
    assert not (tmp_path / "xdg").exists()
    shardwise.index(tmp_path / "one.idx", shards[0]["url"], threads=0)
    with pytest.raises(Mismatch, match=r"no shard .*train-001.tar'; .*index has .*train-000"):
        raw(shards, index=tmp_path / "one.idx")


def test_an_index_lies_where_it_is_wanted(shards: list[Any], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    raw(shards, index_directory=tmp_path / "mine")
    assert list((tmp_path / "mine").glob("*.idx"))


def test_local_shards_are_read_in_place(shards: list[Any], tmp_path: Path) -> None:
    raw(shards, cache_dir=tmp_path / "cache")[0]
    assert not (tmp_path / "cache").exists()
    url = Path(shards[0]["url"]).as_uri()
    assert number_of(raw([{"url": url, "nsamples": 7}])[3]) == 3


def test_a_copy_that_localname_names_is_read(shards: list[Any], tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    os.rename(shards[0]["url"], copies / "train-000.tar")

    def localname(url: str) -> str:
        return str(copies / os.path.basename(url))

    dataset = raw(shards, localname=localname)
    assert dataset.cache_dir is None and dataset.localname is localname
    assert [number_of(dataset[i]) for i in (6, 7)] == [6, 7]
    assert dataset[0]["__shard__"] == shards[0]["url"]


@pytest.mark.parametrize("where", ["cache_dir", "WIDS_CACHE", "localname"])
def test_remote_shards_are_fetched_once_into_the_cache(
    served: FileServer, tmp_path: Path, where: str
) -> None:
    shards = write_shards(tmp_path / "served", [4, 3])
    names = [{**shard, "url": os.path.basename(shard["url"])} for shard in shards]
    write_descriptor(tmp_path / "served" / "train.json", names)
    folder = tmp_path / "wids-cache"
    options: dict[str, Any] = {}
    if where == "cache_dir":
        options["cache_dir"] = folder = tmp_path / "cache"
    if where == "localname":
        folder = tmp_path / "local"
        options["localname"] = lambda url: str(folder / os.path.basename(url))
    dataset = raw(served.url + "/train.json", **options)
    assert dataset.base == served.url + "/"
    assert [number_of(sample) for sample in dataset] == list(range(7))
    assert dataset[6]["__shard__"] == served.url + "/train-001.tar"
    assert list((folder / "shardwise").iterdir())
    if where != "localname":  # a lambda is not picklable
        assert number_of(pickle.loads(pickle.dumps(dataset))[6]) == 6
    served.asked.clear()
    assert [number_of(sample) for sample in dataset] == list(range(7))
    assert served.asked == []


def test_the_url_of_a_descriptor_may_be_path_like(served: FileServer, tmp_path: Path) -> None:
    class Url:
        def __init__(self, text: str) -> None:
            self.text = text

        def __fspath__(self) -> str:
            return self.text

    write_shards(tmp_path / "served", [4])
    listed = [{"url": "train-000.tar", "nsamples": 4}]
    write_descriptor(tmp_path / "served" / "train.json", listed)
    assert len(raw(Url(served.url + "/train.json"))) == 4
    with pytest.raises(InvalidArgument, match="is a command, and commands are not run"):
        raw(Url("pipe:cat x.json"))


def test_remote_shards_are_touched_when_they_are_asked_for(served: FileServer, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "served", [4, 3, 5])
    names = [{**shard, "url": os.path.basename(shard["url"])} for shard in shards]
    names[2]["nsamples"] = 6
    write_descriptor(tmp_path / "served" / "train.json", names)
    dataset = raw(served.url + "/train.json", cache_dir=tmp_path / "cache")
    assert len(dataset) == 13
    assert not [path for path in served.asked if path.endswith(".tar")]
    assert number_of(dataset[5]) == 5
    assert {path for path in served.asked if path.endswith(".tar")} == {"/train-001.tar"}
    with pytest.raises(shardwise.errors.Mismatch, match="5.*6|6.*5"):
        dataset[8]


def test_the_cache_keeps_to_its_bytes(served: FileServer, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "served", [4, 3, 5])
    listed = [{**s, "url": f"{served.url}/{os.path.basename(s['url'])}"} for s in shards]
    size = os.path.getsize(shards[0]["url"])

    def used(**options: Any) -> int:
        dataset = raw(listed, lru_size=1, cache_dir=tmp_path / "cache", **options)
        assert [number_of(sample) for sample in dataset] == list(range(12))
        del dataset
        kept = (tmp_path / "cache" / "shardwise").rglob("*")
        return sum(path.stat().st_size >= size for path in kept)

    assert used(cache_size=1) == 0  # each access fetches the shard
    assert used(cache_size=size + size // 2) == 1
    assert used(cache_size=1, keep=True) == 3


def test_a_remote_descriptor_names_nothing_of_this_machine(
    served: FileServer, tmp_path: Path, shards: list[Any]
) -> None:
    for url in (shards[0]["url"], Path(shards[0]["url"]).as_uri(), "pipe:cat x"):
        listed = [{"url": url, "nsamples": 7}]
        write_descriptor(tmp_path / "served" / "bad.json", listed, base="file:///")
        with pytest.raises(InvalidArgument, match="remote descriptor"):
            raw(served.url + "/bad.json", allow_pipe=True)
    with pytest.raises(NotFound, match="none.json"):
        raw(served.url + "/none.json")


def test_threads_may_share_a_dataset(shards: list[Any]) -> None:
    dataset = raw(shards, lru_size=1)

    def read(first: int) -> None:
        for k in range(300):
            number = (first * 5 + k * 8) % 21
            assert number_of(dataset[number]) == number

    in_threads(read, range(4))
    assert dataset.get_stats()[0] == 1200


def test_several_descriptors_are_one_dataset(tmp_path: Path) -> None:
    paths = []
    for name, lengths in (("a", [2, 3]), ("b", [1, 4])):
        shards = write_shards(tmp_path / name, lengths)
        paths.append(str(write_descriptor(tmp_path / name / "meta.json", shards, name=name)))
    dataset: Any = ShardListDatasetMulti(paths, transformations=[])
    assert dataset.lengths == [2, 3, 1, 4]
    assert "4 shards, 10 samples" in dataset.data_info
    dealt: Any = ShardListDatasetMulti(
        paths, transformations=[], sort_data_inseq=True, num_replicas=2
    )
    assert dealt.lengths == [2, 1, 3, 4]
    assert len(ShardListDatasetMulti(dataset.shards[:2])) == 5
    with pytest.raises(InvalidArgument, match="needs num_replicas"):
        ShardListDatasetMulti(paths, sort_data_inseq=True)


def test_datasets_add_up_as_those_of_torch(shards: list[Any]) -> None:
    torch_data = needs("torch.utils.data")
    both = raw(shards) + raw(shards[:1])
    assert isinstance(both, torch_data.ConcatDataset)
    assert len(both) == 28 and number_of(both[27]) == 6


def test_descriptors_are_json_still(shards: list[Any], tmp_path: Path) -> None:
    path = write_descriptor(tmp_path / "x.json", shards, info="text")
    spec = raw(str(path)).spec
    assert json.loads(json.dumps(spec))["info"] == "text"


def test_names_of_shards_are_no_patterns(tmp_path: Path) -> None:
    (plain,) = write_shards(tmp_path / "x", [3])
    listed = []
    for name in ("a[1].tar", "c*.tar", "d e.tar", "@f.tar", "g?.tar"):
        (tmp_path / name).write_bytes(Path(plain["url"]).read_bytes())
        listed.append({"url": str(tmp_path / name), "nsamples": 3})
    (tmp_path / "c1.tar").write_bytes(b"")
    dataset = raw(listed)
    assert [number_of(sample) for sample in dataset] == [0, 1, 2] * 5
    with pytest.raises(InvalidArgument, match="brace in its name"):
        raw([{"url": "b{1,2}.tar", "nsamples": 3}])


def test_an_index_may_leave_out_what_breaks_a_rule(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("README", b"x"), ("a.cls", b"0"), ("b.cls", b"1")])
    shards = [{"url": str(path), "nsamples": 2}]
    with pytest.raises(shardwise.errors.CorruptShard, match="README"):
        raw(shards)
    shardwise.index(tmp_path / "a.idx", path, on_bad="skip", threads=0)
    assert number_of(raw(shards, index=tmp_path / "a.idx")[1]) == 1


def test_attributes_may_be_set(shards: list[Any]) -> None:
    dataset = raw(shards)
    dataset.cum_lengths = [1, 2]  # type: ignore[assignment]
    assert pickle.loads(pickle.dumps(dataset)).cum_lengths == [1, 2]


def test_fields_may_be_empty_large_or_named_in_any_bytes(tmp_path: Path) -> None:
    large = os.urandom(1 << 20)
    name = b"\xff\xe4".decode("utf-8", "surrogateescape")
    members = [(f"{name}.a", b""), (f"{name}.b", large), (f"{name}.{name}", b"odd")]
    sample = raw([{"url": str(write_tar(tmp_path / "a.tar", members)), "nsamples": 1}])[0]
    assert sample["__key__"] == name
    assert sample[".a"].read() == b"" and sample[".b"].read() == large
    assert sample["." + name].read() == b"odd"


def test_samples_leave_nothing_behind(shards: list[Any]) -> None:
    dataset = raw(shards)
    url = dataset.shards[0]["url"]
    for _ in range(3):
        dataset[0]
    before = sys.getrefcount(url), sys.getrefcount(None), len(gc.get_objects())
    for _ in range(1000):
        dataset[0]
    after = sys.getrefcount(url), sys.getrefcount(None), len(gc.get_objects())
    assert all(b - a < 500 for a, b in zip(before, after))
    packed = weakref.ref(dataset)
    del dataset
    assert packed() is None  # freed at once, as it is in no reference cycle


def test_the_folder_that_is_used_if_none_is_named_is_this_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's name is predictable. If another user made it first, that user could choose the
    content that is read for a URL."""
    from shardwise.wids.shards import DefaultLocalname

    monkeypatch.delenv("WIDS_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"_wids_cache_{os.getuid()}"
    name = DefaultLocalname()("http://host/a.tar")
    assert os.path.dirname(name) == str(folder)
    folder.mkdir(mode=0o700)
    DefaultLocalname()
    folder.chmod(0o777)
    with pytest.raises(InvalidArgument, match="other users"):
        DefaultLocalname()
    folder.chmod(0o700)
    if os.getuid() == 0:
        os.chown(folder, 54321, 54321)
        with pytest.raises(InvalidArgument, match="other users"):
            ShardListDataset([{"url": "http://host/a.tar", "nsamples": 1}])
        os.chown(folder, 0, 0)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(InvalidArgument, match="other users"):
        DefaultLocalname()


def test_a_list_of_another_user_is_not_believed(served: FileServer, tmp_path: Path) -> None:
    """The list of remote shards is stored as a file next to their cache. Other users may have been
    able to write there, so the file is not trusted."""
    written = write_shards(tmp_path / "served", [4, 3, 4])
    remote = [{**s, "url": f"{served.url}/{os.path.basename(s['url'])}"} for s in written]
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    ShardListDataset(remote, cache_dir=folder)
    lists = folder / "shardwise-lists"
    (kept,) = lists.iterdir()
    whole = kept.read_text()
    swapped = whole.replace("-000", "-x").replace("-002", "-000").replace("-x", "-002")
    for damaged in ("", swapped, "\xff"):  # as after a power loss, or a write by another program
        kept.write_text(damaged, encoding="latin-1")
        dataset = ShardListDataset(remote, cache_dir=folder, transformations=[])
        assert dataset[0][".cls"].read() == b"0"
        assert kept.read_text() == whole
    lists.chmod(0o777)
    with pytest.raises(InvalidArgument, match="other users"):
        ShardListDataset(remote, cache_dir=folder)
    lists.chmod(0o700)
    if os.getuid() == 0:
        os.chown(lists, 54321, 54321)
        with pytest.raises(InvalidArgument, match="other users"):
            ShardListDataset(remote, cache_dir=folder)


def test_a_shard_is_compressed_by_its_content_whatever_its_name(
    shards: list[Any], tmp_path: Path
) -> None:
    whole = Path(shards[0]["url"]).read_bytes()
    packed = tmp_path / "packed.tar"
    packed.write_bytes(gzip.compress(whole))
    listed = [{"url": str(packed), "nsamples": shards[0]["nsamples"]}, shards[1]]
    for make in (dict, lambda one: {**one, "filesize": os.path.getsize(one["url"])}):
        data = raw([make(one) for one in listed], cache_dir=tmp_path / "cache")
        assert [number_of(data[i]) for i in (0, len(data) - 1)] == [0, len(data) - 1]
        again = pickle.loads(pickle.dumps(data))
        assert number_of(again[1]) == 1
    assert (tmp_path / "cache/shardwise").is_dir()
    raw([shards[1]], cache_dir=tmp_path / "none")[0]
    assert not (tmp_path / "none").exists(), "a cache is made for what needs one"


def test_braces_of_a_command_are_refused_and_not_taken_for_several(tmp_path: Path) -> None:
    command = f"pipe:cat {tmp_path}/{{a,b}}.tar"
    with pytest.raises(InvalidArgument, match="brace in its name.*script"):
        raw([{"url": command, "nsamples": 1}], allow_pipe=True)


def test_data_sets_of_a_descriptor_can_be_joined(shards: list[Any], tmp_path: Path) -> None:
    texts = tmp_path / "texts.tar"
    with shardwise.TarWriter(texts) as tar:
        for i in (12, 3, 9, 99):
            tar.write({"__key__": f"{i:06}", "txt": f"text {i}", "cls": "7"})
    descriptor = write_descriptor(
        tmp_path / "both.json",
        [],
        datasets=[
            {"name": "first", "shardlist": shards},
            {"name": "Texts 1", "shardlist": [{"url": str(texts), "nsamples": 4}]},
        ],
    )
    data = raw(descriptor, join="Texts 1")
    assert len(data) == sum(shard["nsamples"] for shard in shards)
    for again in (data, pickle.loads(pickle.dumps(data))):
        sample = again[9]
        assert number_of(sample) == 9 and sample[".txt"].read() == b"text 9"
        assert sample[".texts-1.cls"].read() == b"7"
        assert sample["__shard__"] == shards[1]["url"] and sample["__dataset__"] == "first"
        assert ".txt" not in again[8]
    with pytest.raises(InvalidArgument, match="'first', 'Texts 1'"):
        raw(descriptor, join="texts")
    with pytest.raises(InvalidArgument, match="every data set"):
        raw(descriptor, join=["first", "Texts 1"])
