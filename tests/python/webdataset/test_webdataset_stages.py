"""Stages, decoders, writers and lists of shards, each tested by itself."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import JPEG, FileServer, RangeHandler, needs, write_shard
from webdataset_support import NUM_SAMPLES, own_folders, rank_of, url  # noqa: F401

import shardwise
import shardwise.webdataset as wds
from shardwise.errors import BadField, CorruptShard, InvalidArgument, NotFound, Unsupported
from shardwise.webdataset import tars
from shardwise.webdataset.shards import expand_urls
from shardwise.webdataset.stages import default_collation_fn, unlisted


def rows(count: int = 4) -> list[dict[str, Any]]:
    return [{"__key__": f"{i}", "txt": f"no. {i}".encode(), "cls": b"%d" % i} for i in range(count)]


def test_a_sample_is_a_dict_of_bytes_with_key_and_url(url: str) -> None:
    path = url.replace("{000000..000002}", "000000")
    sample = next(iter(wds.WebDataset(url)))
    assert sample == {
        "__key__": "000000", "__url__": path, "__local_path__": path, "bin": b"\0", "cls": b"0",
    }
    assert next(iter(wds.WebDataset(f"file:{path}")))["__url__"] == f"file:{path}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("{a,b{0..1}}-{x,y}", ["a-x", "a-y", "b0-x", "b0-y", "b1-x", "b1-y"]),
        ("a::b-{3..1}", ["a", "b-3", "b-2", "b-1"]),
        ("{a..c}{0..4..2}", ["a0", "a2", "a4", "b0", "b2", "b4", "c0", "c2", "c4"]),
        ("{x}-{", ["{x}-{"]),
        ("${ROOT}/{1,2}", ["/data/1", "/data/2"]),
    ],
)
def test_urls_are_expanded_as_by_a_shell(
    text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WDS_ROOT", "/data")
    assert expand_urls(text) == expected


def test_urls_that_stand_for_nothing_are_refused(tmp_path: Path) -> None:
    for given in ([], 3, str(tmp_path) + "/"):
        with pytest.raises(InvalidArgument):
            wds.WebDataset(given)
    with pytest.raises(InvalidArgument, match="WDS_NOT_SET"):
        wds.WebDataset("${NOT_SET}/a.tar")
    with pytest.raises(Unsupported, match="mix"):
        wds.WebDataset("sets.yaml")
    with pytest.raises(InvalidArgument, match="cache_dir"):
        wds.WebDataset("a.tar", cache_dir=str(tmp_path / "none"))
    with pytest.raises(NotFound):
        next(iter(wds.WebDataset(str(tmp_path / "none.tar"))))


def test_shards_come_from_folders_servers_commands_and_gzip(tmp_path: Path, url: str) -> None:
    folder = Path(url).parent
    first = folder / "train-000000.tar"
    zipped = tmp_path / "zipped.tar.gz"
    zipped.write_bytes(gzip.compress(first.read_bytes()))
    (tmp_path / "cache").mkdir()
    with FileServer(folder, RangeHandler) as site:
        for given in (f"{site.url}/{first.name}", f"pipe:cat '{first}' | cat", str(zipped)):
            dataset = wds.WebDataset(given, cache_dir=str(tmp_path / "cache"), cache_size=1 << 30)
            samples = list(dataset)
            assert len(samples) == 401 and samples[0]["__url__"] == given
    assert len(list(wds.WebDataset(f"{folder}/"))) == NUM_SAMPLES


def test_contents_say_whether_a_shard_is_compressed(tmp_path: Path, url: str) -> None:
    first = (Path(url).parent / "train-000000.tar").read_bytes()
    shards = {"zipped.tar": gzip.compress(first), "plain.tar.gz": first, "none": gzip.compress(first)}
    (tmp_path / "cache").mkdir()
    for name, content in shards.items():
        (tmp_path / name).write_bytes(content)
        for handler in (wds.reraise_exception, wds.warn_and_continue):
            given = str(tmp_path / name)
            dataset = wds.WebDataset(given, cache_dir=str(tmp_path / "cache"), handler=handler)
            assert len(list(dataset)) == 401


def keys_by_name(members: Iterable[Any]) -> list[str]:
    """Returns the keys of all members. Reads member["fname"] of each item, like functions that
    expect only members."""
    samples = []
    for member in members:
        key, _ = tars.base_plus_ext(member["fname"])
        if key is not None:
            samples.append(key)
    return samples


def test_behind_each_shard_is_an_empty_dict_that_other_functions_pass_over(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.tar") for number in range(3)]
    for path, keys in zip(paths, ["ab", "cd", "de"], strict=True):
        write_shard(Path(path), [(key, {"txt": b"x"}) for key in keys])
    listed = [{"url": path} for path in paths]
    members = list(tars.tar_file_expander(listed))
    assert [place for place, one in enumerate(members) if one == {} and not one] == [2, 5, 8]
    assert [sample["__key__"] for sample in tars.group_by_keys(members)] == list("abcdde")
    assert keys_by_name(members) == list("abcdde")
    assert len(list(tars.tar_file_expander(listed, eof_value=None))) == 6


def test_members_named_like_key_and_url_do_not_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "odd.tar"
    write_shard(path, [("a", {"__key__": b"x", "__url__": b"x", "txt": b"y"})])
    assert next(iter(wds.WebDataset(str(path)))) == {
        "__key__": "a", "__url__": str(path), "__local_path__": str(path), "txt": b"y",
    }


def test_commands_are_not_run_where_it_is_to_be_secure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(Unsupported, match="WDS_SECURE"):
        next(iter(wds.WebDataset("pipe:cat a.tar")))


def test_handlers_leave_out_what_cannot_be_read(tmp_path: Path, url: str) -> None:
    whole = url.replace("{000000..000002}", "000001")
    cut = tmp_path / "cut.tar"
    cut.write_bytes(Path(whole).read_bytes()[:100_000])
    shards = [whole, str(cut), str(tmp_path / "none.tar")]
    with pytest.raises((NotFound, CorruptShard)):
        list(wds.WebDataset(shards))
    keys = [one["__key__"] for one in wds.WebDataset(shards, handler=wds.ignore_and_continue)]
    assert keys[:300] == [f"{i:06}" for i in range(401, 701)]
    assert 0 < len(keys[300:]) < 300 and keys[300] == "000401"
    twice = wds.WebDataset([whole, str(cut), whole], handler=wds.ignore_and_continue)
    assert sum(one["__key__"] == "000500" for one in twice) == 2
    with pytest.warns(UserWarning, match="none"):
        assert list(wds.WebDataset(shards[2], handler=wds.warn_and_continue)) == []


@pytest.mark.parametrize("times", [1, 2])
def test_handlers_leave_out_a_shard_that_has_gone_since_it_was_opened(url: str, times: int) -> None:
    shards = [url.replace("{000000..000002}", f"00000{i}") for i in range(3)]
    dataset = wds.WebDataset(shards * times, handler=wds.ignore_and_continue)
    dataset.pipeline[0].opened()
    os.unlink(shards[1])
    assert len(list(dataset)) == times * (NUM_SAMPLES - 300)


def test_a_handler_that_ends_a_pass_ends_it_before_the_shard(tmp_path: Path, url: str) -> None:
    shards = [url.replace("{000000..000002}", f"00000{i}") for i in range(2)]
    cut = tmp_path / "cut.tar"
    cut.write_bytes(Path(shards[0]).read_bytes()[:100_000])
    for bad in (str(cut), str(tmp_path / "none.tar")):
        dataset = wds.WebDataset([shards[1], bad, shards[0]], handler=wds.ignore_and_stop)
        assert [one["__key__"] for one in dataset] == [f"{i:06}" for i in range(401, 701)]


def test_a_file_with_two_names_comes_twice(tmp_path: Path, url: str) -> None:
    shard = url.replace("{000000..000002}", "000001")
    links = [str(tmp_path / "soft.tar"), str(tmp_path / "hard.tar")]
    os.symlink(shard, links[0])
    os.link(shard, links[1])
    counts = Counter(one["__url__"] for one in wds.WebDataset([shard, *links]))
    assert counts == dict.fromkeys([shard, *links], 300)


def test_wrong_arguments_are_refused_by_the_call(url: str) -> None:
    dataset = wds.WebDataset(url)
    for call in (
        lambda: dataset.shuffle(10, inital=5),
        lambda: dataset.to_tuple("cls", missing_is_eror=False),
        lambda: wds.batched(2, 3, 4, 5),
    ):
        with pytest.raises(TypeError, match=r"\w\(\): "):
            call()
    for wrong in (lambda: dataset.batched("8"), lambda: wds.shuffle(None)):
        with pytest.raises(InvalidArgument, match="give a number"):
            wrong()
    for size in (0, -1, float("nan")):
        with pytest.raises(InvalidArgument, match="batchsize="):
            dataset.batched(size)
    for what, wrong in (
        ("seed='x'", lambda: wds.WebDataset(url, seed="x")),
        ("splitter='x'", lambda: wds.WebDataset(url, nodesplitter="x")),
        ("epoch=-1", lambda: dataset.set_epoch(-1)),
        ("epoch='x'", lambda: wds.WebLoader(dataset).set_epoch("x")),
    ):
        with pytest.raises(InvalidArgument, match=what):
            wrong()
    with pytest.raises(InvalidArgument, match="from 0 to 1"):
        next(iter(wds.rsample(1.5)(rows())))


def test_no_handler_drops_items_that_a_stage_cannot_have() -> None:
    handler = wds.ignore_and_continue
    for stage, items in (
        (unlisted(), [{"cls": b"0"}]),
        (unlisted(), [(1, 2)]),
        (wds.map_tuple(handler=handler), [{"cls": b"0"}]),
        (wds.map_dict(cls=int, handler=handler), [("0",)]),
        (wds.decode(handler=handler), [("0",)]),
    ):
        with pytest.raises(InvalidArgument, match="check the stages before it"):
            list(stage(items))


def test_a_data_pipeline_may_have_no_samples(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "empty.tar", [])
    stages = [wds.SimpleShardList(str(shard)), wds.tarfile_to_samples()]
    assert list(wds.DataPipeline(*stages)) == []
    with pytest.raises(ValueError, match="no item"):
        list(wds.DataPipeline(*stages, wds.non_empty))


def test_handlers_say_what_becomes_of_errors_of_stages() -> None:
    def bad(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["__key__"] == "2":
            raise ValueError("two")
        return sample

    def keys(handler: Any) -> list[str]:
        return [one["__key__"] for one in wds.map(bad, handler=handler)(rows())]

    assert keys(wds.ignore_and_continue) == ["0", "1", "3"]
    assert keys(wds.ignore_and_stop) == ["0", "1"]
    with pytest.warns(UserWarning, match="two"):
        assert keys(wds.warn_and_continue) == ["0", "1", "3"]
    with pytest.warns(UserWarning, match="two"):
        assert keys(wds.warn_and_stop) == ["0", "1"]
    with pytest.raises(ValueError, match="two"):
        keys(wds.reraise_exception)


def test_stages_by_sample() -> None:
    def one(stage: Any) -> Any:
        return next(iter(stage(rows())))

    assert one(wds.rename(text="doc;txt")) == {"__key__": "0", "cls": b"0", "text": b"no. 0"}
    assert one(wds.rename(text="txt", keep=False)) == {"text": b"no. 0"}
    assert one(wds.map_dict(cls=int))["cls"] == 0
    assert one(wds.to_tuple("a;cls", "__key__")) == (b"0", "0")
    assert one(wds.to_tuple("txt cls")) == (b"no. 0", b"0")
    assert one(wds.to_tuple("txt", "no", missing_is_error=False)) == (b"no. 0", None)
    assert one(wds.extract_keys("*.txt", "c*")) == (b"no. 0", b"0")
    assert one(wds.rename_keys(label="cls", keep_unselected=True))["label"] == b"0"
    assert one(wds.xdecode(cls=lambda stream: int(stream.read()))) == {
        "__key__": "0", "txt": "no. 0", "cls": 0,
    }
    assert one(wds.associate({"0": {"more": 1}}))["more"] == 1
    assert one(wds.map(lambda sample: {"x": 1})) == {"x": 1, "__key__": "0"}
    assert list(wds.map(lambda i: i if i % 2 else None)(range(5))) == [1, 3]
    assert list(wds.select(lambda i: i > 2)(range(5))) == [3, 4]
    assert list(wds.map_tuple(None, str)([(1, 2), (3, 4)])) == [(1, "2"), (3, "4")]
    assert list(wds.slice(1, 3)(range(5))) == [1, 2]
    for stage in (wds.to_tuple("no"), wds.rename(x="no"), wds.extract_keys("no"),
                  wds.rename_keys(x="no"), wds.xdecode()):
        with pytest.raises(ValueError):
            one(stage)
    with pytest.raises(InvalidArgument):
        one(wds.map_dict())
    assert pickle.loads(pickle.dumps(wds.to_tuple("cls")))(rows()).__next__() == (b"0",)


def test_a_mix_goes_on_with_datasets_of_probability_0() -> None:
    mixed = wds.RandomMix([range(3), range(10, 12), range(20, 21)], [1, 0, 0], longest=True)
    items = list(mixed)
    assert items[:3] == [0, 1, 2] and sorted(items) == [0, 1, 2, 10, 11, 20]


def test_shuffle_gives_each_item_once() -> None:
    for stage in (wds.shuffle(10, seed=1), wds.shuffle(1000), wds.detshuffle(10)):
        items = list(wds.DataPipeline(range(200), stage))
        assert sorted(items) == list(range(200)) and items != sorted(items)


@pytest.mark.parametrize("initial", [1, 100, 101, 5000])
def test_the_buffer_of_a_shuffle_grows_to_its_size(initial: int) -> None:
    items = list(wds.shuffle(1000, initial, seed=1)(range(5000)))
    assert sorted(items) == list(range(5000))
    assert max(item - place for place, item in enumerate(items)) == 999
    assert items[0] < min(initial, 1000) + 1


def test_batches_are_collated_and_taken_apart() -> None:
    numpy = needs("numpy")
    pairs = [(numpy.full((2,), i), i, str(i)) for i in range(5)]
    first, last = wds.batched(3)(pairs)
    assert (first[0].shape, first[1].tolist(), first[2]) == ((3, 2), [0, 1, 2], ["0", "1", "2"])
    assert len(last[2]) == 2
    assert len(list(wds.batched(3, partial=False)(pairs))) == 1
    assert list(wds.batched(2, collation_fn=None)("abc")) == [["a", "b"], ["c"]]
    back = list(wds.unbatched()(wds.batched(3)(pairs)))
    assert [(int(i), text) for _, i, text in back] == [(i, str(i)) for i in range(5)]
    dicts = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert default_collation_fn(dicts)["b"] == ["x", "y"]
    assert list(wds.unbatched()([{"a": [1, 2]}, (), {}])) == [{"a": 1}, {"a": 2}]
    with pytest.raises(InvalidArgument, match="shape"):
        default_collation_fn([(numpy.zeros(2),), (numpy.zeros(3),)])
    with pytest.raises(InvalidArgument, match="different fields"):
        default_collation_fn([{"a": 1}, {"b": 1}])


def test_pipelines_without_shards() -> None:
    assert list(wds.DataPipeline(wds.MockDataset(1, 3), wds.map(str))) == ["1", "1", "1"]
    assert list(wds.FluidWrapper([1, 2]).map(str).repeat(2)) == ["1", "2", "1", "2"]
    assert list(wds.RoundRobin([[1, 2], [3, 4, 5]])) == [1, 3, 2, 4]
    assert sorted(wds.RoundRobin([[1, 2], [3, 4, 5]], longest=True)) == [1, 2, 3, 4, 5]
    assert sorted(wds.RandomMix([[1, 2], [3]], longest=True)) == [1, 2, 3]
    assert list(wds.RandomMix([[1, 2], [3]], probs=[1, 0])) == [1, 2]
    over = wds.with_epoch([1, 2, 3], 2)
    assert [list(over), list(over)] == [[1, 2], [3, 1]]
    assert len(wds.with_length([1], 7)) == 7
    assert list(wds.repeatedly([1, 2], nbatches=3)) == [1, 2, 1]
    cached = wds.FluidWrapper(iter([1, 2])).mcached()
    assert [list(cached), list(cached)] == [[1, 2], [1, 2]]


def test_a_length_that_is_said_pickles(url: str) -> None:
    dataset = wds.WebDataset(url).with_length(7)
    again = pickle.loads(pickle.dumps(dataset))
    assert len(dataset) == len(again) == 7 and isinstance(again, wds.WebDataset)
    assert len(list(again)) == NUM_SAMPLES


def test_a_data_pipeline_of_shards_is_exact(url: str) -> None:
    keys = []
    for rank in range(3):
        with rank_of(rank, 3):
            dataset = wds.DataPipeline(
                wds.SimpleShardList(url),
                wds.shuffle(100),
                wds.split_by_node,
                wds.split_by_worker,
                wds.tarfile_to_samples(handler=wds.warn_and_continue),
                wds.shuffle(1000),
                wds.to_tuple("__key__"),
            )
            keys += [key for (key,) in dataset]
            assert dataset.state_dict()["parts"][0]["world_size"] == 3
    assert sorted(keys) == [f"{i:06}" for i in range(NUM_SAMPLES)]
    drawn = wds.DataPipeline(wds.ResampledShards(url), wds.tarfile_to_samples(), wds.shuffle(10))
    assert len(list(islice(drawn, 2000))) == 2000


def test_files_are_selected_by_name(url: str) -> None:
    dataset = wds.WebDataset(url, select_files=lambda name: name.endswith(".cls"))
    assert set(next(iter(dataset))) == {"__key__", "__url__", "__local_path__", "cls"}
    with pytest.raises(Unsupported, match="rename_keys"):
        wds.WebDataset(url, rename_files=str.lower)


def test_fields_are_decoded_by_their_names() -> None:
    numpy = needs("numpy")
    array = numpy.arange(6).reshape(2, 3)
    npy, npz = io.BytesIO(), io.BytesIO()
    numpy.save(npy, array)
    numpy.savez(npz, a=array)
    sample = {
        "__key__": "a", "a.txt": "ä".encode(), "cls": b"7", "json": b'{"x": 1}', "bin": b"\0",
        "b.txt.gz": gzip.compress(b"zipped"), "npy": npy.getvalue(), "npz": npz.getvalue(),
    }
    (decoded,) = wds.decode()([sample])
    assert (decoded["a.txt"], decoded["cls"], decoded["json"]) == ("ä", 7, {"x": 1})
    assert (decoded["b.txt.gz"], decoded["bin"]) == ("zipped", b"\0")
    assert (decoded["npy"] == array).all() and (decoded["npz"]["a"] == array).all()
    assert wds.Decoder([], only="cls")(sample)["json"] == b'{"x": 1}'
    with pytest.raises(wds.DecodingError, match="'a', field 'cls'"):
        wds.Decoder([])({**sample, "cls": 7})
    assert wds.Decoder([], partial=True)({"cls": 7}) == {"cls": 7}
    seg = wds.handle_extension("seg.txt", len)
    assert wds.Decoder([seg])({"seg.txt": b"abc", "txt": b"abc"}) == {"seg.txt": 3, "txt": "abc"}


def test_a_pickle_is_not_read() -> None:
    sample = {"__key__": "a", "pyd": pickle.dumps(1)}
    with pytest.raises(wds.DecodingError) as caught:
        list(wds.decode()([sample]))
    assert isinstance(caught.value.__cause__, Unsupported)
    trusted = wds.handle_extension("pyd", pickle.loads)
    assert next(iter(wds.decode(trusted)([sample])))["pyd"] == 1


IMAGES = ["pil", "pill", "pilrgb", "pilrgba", "l", "l8", "rgb", "rgb8", "rgba", "rgba8"]


@pytest.mark.parametrize("spec", IMAGES + [f"torch{mode}" for mode in ("", *IMAGES[4:])])
def test_images_are_what_their_text_says(spec: str) -> None:
    needs("PIL")
    numpy = needs("numpy")
    if spec.startswith("torch"):
        needs("torch")
    image = wds.Decoder([spec])({"jpg": JPEG})["jpg"]
    mode = spec.removeprefix("torch").removeprefix("pil").removesuffix("8") or "rgb"
    if spec.startswith("pil"):
        assert (image.size, image.mode) == ((16, 12), mode.upper())
        return
    sizes = (12, 16) if mode == "l" else (12, 16, len(mode))
    if spec.startswith("torch") and mode != "l":
        sizes = (len(mode), 12, 16)
    assert tuple(image.shape) == sizes
    assert str(image.dtype).endswith("uint8" if spec.endswith("8") else "float32")
    top = float(numpy.asarray(image).max())
    assert (top > 1) if spec.endswith("8") else (0 < top <= 1)


def jpegs() -> Iterator[bytes]:
    """JPEGs of odd sizes: each mode, with and without progression, each subsampling."""
    numpy = needs("numpy")
    image = needs("PIL.Image")
    rng = numpy.random.default_rng(5)
    for size in [(1, 1), (7, 9), (16, 8), (33, 17), (65, 130)]:
        noise = image.fromarray(rng.integers(0, 256, (*size, 3), dtype=numpy.uint8))
        for mode, progressive, subsampling in itertools.product(["L", "RGB", "CMYK"], [0, 1], range(3)):
            stream = io.BytesIO()
            noise.convert(mode).save(
                stream, "JPEG", quality=70, progressive=bool(progressive), subsampling=subsampling
            )
            yield stream.getvalue()


def test_pixels_of_jpegs_equal_those_of_pillow() -> None:
    numpy = needs("numpy")
    image = needs("PIL.Image")
    for jpeg in jpegs():
        expected = numpy.asarray(image.open(io.BytesIO(jpeg)).convert("RGB"))
        numpy.testing.assert_array_equal(shardwise.decode_image(jpeg), expected)
        numpy.testing.assert_array_equal(wds.Decoder(["rgb8"])({"jpg": jpeg})["jpg"], expected)


def test_a_damaged_jpeg_is_an_error_of_pillow() -> None:
    needs("PIL")
    for damaged in (JPEG[: len(JPEG) // 2], b"\xff\xd8 and no more"):
        with pytest.raises(BadField):
            shardwise.decode_image(damaged)
        with pytest.raises(wds.DecodingError) as caught:
            wds.Decoder(["rgb8"])({"jpg": damaged})
        assert isinstance(caught.value.__cause__, OSError)


def test_images_decode_alone() -> None:
    numpy = needs("numpy")
    image = needs("PIL.Image")
    turned = image.new("RGB", (4, 2), "red")
    exif = image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    turned.save(stream, "JPEG", exif=exif)
    data = memoryview(stream.getvalue())
    pixels = shardwise.decode_image(data)
    assert (pixels.shape, pixels.dtype) == ((2, 4, 3), numpy.uint8)
    decoding = shardwise.transforms.ImageDecoding(apply_orientation=True)
    assert shardwise.decode_image(data, decoding).shape == (4, 2, 3)
    with pytest.raises(BadField, match="limit of 7 pixels"):
        shardwise.decode_image(data, shardwise.transforms.ImageDecoding(max_pixels=7))
    with pytest.raises(TypeError):
        shardwise.decode_image("a path")


def test_an_unknown_way_to_decode_images_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="rgb8"):
        wds.imagehandler("bgr")


def test_writers_write_what_the_pipeline_reads(tmp_path: Path) -> None:
    done: list[str] = []
    pattern = str(tmp_path / "new-%03d.tar")
    with wds.ShardWriter(pattern, maxcount=3, post=done.append, start_shard=5) as sink:
        for i in range(7):
            sink.write({"__key__": f"{i}", "txt": f"{i}", "json": [i], "__url__": "x"})
    assert done == [pattern % shard for shard in (5, 6, 7)]
    sizes: list[int] = []
    with wds.ShardWriter(
        str(tmp_path / "opened-%d.tar"), maxcount=1, opener=lambda path: open(path, "wb"),
        post=lambda path: sizes.append(os.path.getsize(path)),
    ) as sink:
        for size in (1, 126_000):
            sink.write({"__key__": "a", "bin": bytes(size)})
    assert sizes == [os.path.getsize(tmp_path / f"opened-{i}.tar") for i in range(2)]
    samples = list(wds.WebDataset(done).decode())
    assert [(one["txt"], one["json"]) for one in samples] == [(f"{i}", [i]) for i in range(7)]
    with open(tmp_path / "open.tar", "wb") as file, wds.TarWriter(file, encoder=False) as tar:
        assert tar.write({"__key__": "a", "x": b"abc"}) == 3
        with pytest.raises(InvalidArgument, match="encoder=False"):
            tar.write({"__key__": "b", "x": 1})
    assert shardwise.open(tmp_path / "open.tar")[0].bytes("x") == b"abc"
    with wds.TarWriter(str(tmp_path / "own.tar"), encoder={"x": lambda i: b"%d" % i}) as tar:
        tar.write({"__key__": "a", "x": 5})
    assert next(iter(wds.WebDataset(str(tmp_path / "own.tar"))))["x"] == b"5"
    for options in ({"compress": True}, {"keep_meta": True}):
        with pytest.raises(Unsupported):
            wds.TarWriter(str(tmp_path / "no.tar"), **options)
    with pytest.raises(Unsupported, match="Popen"):
        wds.TarWriter("pipe:cat")


def test_a_writer_to_a_full_disk_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open("/dev/full", "wb", buffering=0) as file:
        tar = wds.TarWriter(file)
        tar.write({"__key__": "a", "x": b""})
        with pytest.raises(OSError, match="No space left"):
            tar.close()
    assert not list(tmp_path.iterdir())


def test_a_writer_whose_block_fails_leaves_no_shard(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), wds.ShardWriter(str(tmp_path / "a-%d.tar")) as sink:
        sink.write({"__key__": "a", "txt": "x"})
        raise RuntimeError
    assert not list(tmp_path.glob("*.tar"))


def test_what_is_not_there_names_what_is() -> None:
    with pytest.raises(Unsupported, match="cache_dir"):
        wds.FluidWrapper([1]).lmdb_cached("x")
    with pytest.raises(Unsupported, match="with_epoch"):
        wds.ResampledShards("a.tar", nshards=3)
    with pytest.raises(wds.DecodingError) as caught:
        wds.Decoder([])({"__key__": "a", "ten": b"x"})
    assert "handle_extension" in str(caught.value.__cause__)


def test_each_rank_worker_and_pass_resamples_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(rank: int, worker: int, passes: int = 1) -> tuple[str, ...]:
        monkeypatch.setenv("RANK", f"{rank}")
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("WORKER", f"{worker}")
        monkeypatch.setenv("NUM_WORKERS", "2")
        shards = wds.ResampledShards("a-{0..9}.tar", seed=3, deterministic=True)
        for _ in range(passes):
            urls = tuple(one["url"] for one in islice(shards, 20))
        return urls

    draws = [drawn(rank, worker, passes) for rank in (0, 1) for worker in (0, 1) for passes in (1, 2)]
    assert len(set(draws)) == len(draws)
    assert drawn(1, 0) == drawn(1, 0)
