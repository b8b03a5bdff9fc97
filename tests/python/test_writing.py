"""Writing shards and reading them back."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs, run_script
from PIL import Image, ImageOps

import shardwise
from shardwise import ShardWriter, TarWriter, errors
from shardwise.encoding import encoded


def test_what_is_written_is_read(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with ShardWriter(
        tmp_path / "a-%03d.tar", max_samples=3, index=tmp_path / "a.idx", columns=["cls"]
    ) as sink:
        for i in range(8):
            sink.write(
                {
                    "__key__": f"k{i}",
                    "__url__": "left out",
                    "txt": f"text {i}",
                    "cls": np.int64(i),
                    "json": {"a": [i]},
                    "npy": array + i,
                    "bin": memoryview(b"\0\1"),
                    "note.txt.gz": "packed",
                }
            )
    assert [Path(path).name for path in sink.paths] == ["a-000.tar", "a-001.tar", "a-002.tar"]
    ds = shardwise.open(tmp_path / "a.idx")
    assert ds.column("cls") == list(range(8))
    sample = ds[5]
    assert sample.text("txt") == "text 5"
    assert sample.json("json") == {"a": [5]}
    import gzip

    assert np.array_equal(np.load(io.BytesIO(sample.bytes("npy"))), array + 5)
    assert bytes(sample["bin"]) == b"\0\1"
    assert gzip.decompress(sample["note.txt.gz"]) == b"packed"


def test_pixels_out_of_range_are_refused(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "a-%d.tar")
    for pixels in (np.full((2, 2, 3), 1.5), np.full((2, 2, 3), np.nan), np.full((2, 2, 3), -1)):
        with pytest.raises(errors.BadField, match="'png' cannot be stored: pixels of "):
            sink.write({"__key__": "a", "png": pixels})
    sink.close()


def test_numbers_and_pixels_of_other_types_keep_their_values(tmp_path: Path) -> None:
    pixels = np.arange(12).reshape(2, 2, 3) * 20
    with ShardWriter(tmp_path / "a-%d.tar", index=tmp_path / "a.idx") as sink:
        sink.write(
            {
                "__key__": "a",
                "cls": 5.0,
                "id": True,
                "png": pixels,
                "eye.png": pixels / 255,
                "mask.png": pixels > 100,
            }
        )
    sample = shardwise.open(tmp_path / "a.idx")[0]
    assert (sample.integer("cls"), sample.integer("id")) == (5, 1)

    def read(field: str) -> Any:
        return np.asarray(Image.open(io.BytesIO(sample.bytes(field)))).astype(int)

    assert np.array_equal(read("png"), pixels)
    assert np.abs(read("eye.png") - pixels).max() <= 1
    assert np.array_equal(read("mask.png"), (pixels > 100) * 255)


def test_equal_samples_make_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with TarWriter(tmp_path / f"{name}.tar") as sink:
            sink.write({"__key__": "x", "txt.gz": "hello", "cls": 3})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_bad_samples_are_refused(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "a-%d.tar")
    with pytest.raises(ValueError, match="__key__"):
        sink.write({"txt": "x"})
    for key in (1, b"a", None):
        with pytest.raises(errors.InvalidArgument, match="^the \"__key__\" is .*; give a str"):
            sink.write({"__key__": key, "txt": "x"})
    with pytest.raises(ValueError, match="dot"):
        sink.write({"__key__": "a.b", "txt": "x"})
    with pytest.raises(errors.BadField, match="'cls' cannot be stored"):
        sink.write({"__key__": "a", "cls": [1]})
    for value in (5.7, float("nan"), float("inf"), np.float32(0.5)):
        with pytest.raises(errors.BadField, match="'cls' cannot be stored: .*whole number"):
            sink.write({"__key__": "a", "cls": value})
    with pytest.raises(errors.BadField, match="'json' cannot be stored: .*not JSON compliant"):
        sink.write({"__key__": "a", "json": {"x": [float("nan")]}})
    objects = np.array([object()])
    with pytest.raises(errors.BadField, match="'npz' cannot be stored: .*'x' has Python objects"):
        sink.write({"__key__": "a", "npz": {"x": objects}})
    with pytest.raises(errors.BadField, match="'pt' cannot be stored: .*dict"):
        sink.write({"__key__": "a", "pt": {}})
    sink.write({"__key__": "a", "txt": "x"})
    sink.close()
    with pytest.raises(ValueError, match="a-0.tar"):
        other = ShardWriter(tmp_path / "a-%d.tar")
        other.write({"__key__": "a", "txt": "x"})
    with pytest.raises(ValueError):
        ShardWriter(tmp_path / "none.tar")
    with pytest.raises(ValueError, match="already exists"):
        TarWriter(tmp_path / "a-0.tar")


def test_an_exception_makes_no_index(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        with ShardWriter(tmp_path / "a-%d.tar", 1, index=tmp_path / "a.idx") as sink:
            sink.write({"__key__": "a", "txt": "x"})
            sink.write({"__key__": "b", "txt": "x"})
            raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".tar", ".idx")) == [
        "a-0.tar"
    ]


def test_own_encoders(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", encoders={"rev": lambda value: value[::-1].encode()}) as sink:
        sink.write({"__key__": "a", "rev": "abc"})
    assert bytes(shardwise.open(tmp_path / "a.tar", index_directory=tmp_path)[0]["rev"]) == b"cba"


def test_packing_is_that_of_the_command(tmp_path: Path) -> None:
    for name, color in (("a", b"\1"), ("b", b"\2")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "photos" / name / f"{i}.v1.jpg").write_bytes(color * i)
    (tmp_path / "photos" / "notes.txt").write_text("x")
    (tmp_path / "out").mkdir()
    seen = []
    report = shardwise.pack(
        tmp_path / "out" / "x-%06d.tar",
        images=tmp_path / "photos",
        max_samples=4,
        shuffle=True,
        index=tmp_path / "x.idx",
        progress=seen.append,
    )
    assert report.classes == ["a", "b"]
    assert report.num_samples == 10
    assert len(report.paths) == 3
    assert seen
    ds = shardwise.open(tmp_path / "x.idx")
    for sample in ds:
        folder, name = sample.key.split("/")
        assert sample.integer("cls") == ["a", "b"].index(folder)
        assert len(sample["jpg"]) == int(name[0])
    assert [sample.key for sample in ds] != sorted(sample.key for sample in ds)
    with pytest.raises(ValueError, match="either images or files"):
        shardwise.pack(tmp_path / "out" / "y-%d.tar")
    with pytest.raises(errors.NotFound):
        shardwise.pack(tmp_path / "out" / "y-%d.tar", files=tmp_path / "nix")


def test_an_exception_ends_the_writer(tmp_path: Path) -> None:
    sample = {"__key__": "a", "txt": "x"}
    for make in (
        lambda: ShardWriter(tmp_path / "s-%d.tar", max_samples=1),
        lambda: TarWriter(tmp_path / "t.tar"),
    ):
        with pytest.raises(KeyError), make() as sink:
            sink.write(sample)
            if isinstance(sink, ShardWriter):
                sink.write(sample)  # begins the next shard
            raise KeyError
        with pytest.raises(errors.InvalidArgument, match="has ended this writer"):
            sink.write(sample)
        sink.close()
        assert [path.name for path in tmp_path.iterdir()] == ["s-0.tar"]
        if isinstance(sink, ShardWriter):
            assert sink.paths == [str(tmp_path / "s-0.tar")] and sink.num_samples == 2


def test_a_sample_is_a_dict(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "s-%d.tar")
    with pytest.raises(errors.InvalidArgument, match="^not valid: sample=3; give a dict"):
        sink.write(3)  # type: ignore[arg-type]


def fill(sink: ShardWriter | TarWriter, key: str) -> None:
    sink.write({"__key__": key, "bin": b"1"})


def test_of_two_writers_with_the_same_names_the_later_one_is_told(tmp_path: Path) -> None:
    first, second = (ShardWriter(tmp_path / "a-%d.tar", max_samples=2) for _ in range(2))
    for sink, key in ((first, "a"), (second, "b")):
        fill(sink, key)
    first.close()
    with pytest.raises(errors.InvalidArgument, match="the shard already exists: '.*a-0.tar'"):
        second.close()
    assert [sample.key for sample in shardwise.open(tmp_path / "a-0.tar")] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["a-0.tar"]


def test_of_two_writers_of_one_shard_the_later_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    first, second, third = (TarWriter(path, replace=again) for again in (False, False, True))
    for sink, key in ((first, "a"), (second, "b"), (third, "c")):
        fill(sink, key)
    first.close()
    with pytest.raises(errors.InvalidArgument, match="already exists: '.*a.tar'"):
        second.close()
    assert [sample.key for sample in shardwise.open(path, index_directory=tmp_path / "i")] == ["a"]
    third.close()
    assert [sample.key for sample in shardwise.open(path, index_directory=tmp_path / "j")] == ["c"]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.tar", "i", "j"]


@pytest.mark.parametrize("name", ["a-%d.tar.gz", "a-%d.tgz", "a-%d.tar.zst"])
def test_names_of_compressed_shards_are_refused(tmp_path: Path, name: str) -> None:
    for make in (lambda: ShardWriter(tmp_path / name), lambda: TarWriter(tmp_path / name)):
        with pytest.raises(errors.InvalidArgument, match="compressed shards"):
            make()


def test_a_shard_without_a_limit(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar", max_bytes=float("inf")) as sink:
        fill(sink, "a")
    assert len(sink.paths) == 1


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    own: Any = {"own": lambda value: "text"}
    with TarWriter(tmp_path / "a.tar", encoders=own) as sink:
        fill(sink, "a")
        for sample, text in (
            ({"gz": 1}, "'gz' cannot be stored: .* int"),
            ({"own": 1}, "'own' cannot be stored: the encoder .* type str; return bytes"),
        ):
            with pytest.raises(errors.BadField, match=text):
                sink.write({"__key__": "b", **sample})
        wrong: dict[object, object] = {"__key__": "b", 3: b"1"}
        with pytest.raises(errors.InvalidArgument, match="is 3; give a str"):
            sink.write(wrong)  # type: ignore[arg-type]
    assert [sample.key for sample in shardwise.open(tmp_path / "a.tar")] == ["a"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EOPNOTSUPP])
def test_a_shard_is_not_replaced_where_there_are_no_links(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    first, second = (TarWriter(tmp_path / "a.tar") for _ in range(2))
    fill(first, "a")
    fill(second, "b")
    first.close()
    with pytest.raises(errors.InvalidArgument, match="already exists"):
        second.close()
    third = TarWriter(tmp_path / "b.tar")
    fill(third, "c")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=re.escape(os.strerror(code))):
        third.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]
    assert [sample.key for sample in shardwise.open(tmp_path / "a.tar")] == ["a"]


def image_bytes(image: Image.Image, kind: str, **options: Any) -> io.BytesIO:
    stream = io.BytesIO()
    image.save(stream, format=kind, **options)
    stream.seek(0)
    return stream


def with_alpha(alpha: int) -> Image.Image:
    image = Image.new("RGBA", (4, 3), (200, 100, 50, 255))
    image.putpixel((1, 1), (200, 100, 50, alpha))
    return image


def frames() -> Image.Image:
    first, second = Image.new("RGB", (4, 3), "red"), Image.new("RGB", (4, 3), "blue")
    return Image.open(image_bytes(first, "GIF", save_all=True, append_images=[second]))


def transparent_palette() -> Image.Image:
    image = Image.new("P", (4, 3))
    image.info["transparency"] = 0
    return image


def deep_list() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


class Loud:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array of this")


MASKED = np.ma.masked_array([1, 2], [False, True])

# Values that would be lost: field, value, and the error's text.
LOST: dict[str, tuple[str, Any, str]] = {
    "a mask": ("npy", MASKED, "array has a mask"),
    "a mask in a list": ("npy", [MASKED, MASKED], "array has a mask"),
    "a mask of a number": ("cls", np.ma.masked_array(5, True), "a mask"),
    "a mask in npz": ("npz", {"x": MASKED}, "the array 'x' has a mask"),
    "a mask of pixels": ("png", np.ma.masked_array(np.zeros((2, 2), np.uint8)), "a mask"),
    "numbers beyond int64": ("npy", range(2**63 - 1, 2**63 + 1), "where the range has 9223372036"),
    "a type": ("npy", np.zeros(3, "V2"), r"is of \|V2, which NumPy's format"),
    "a type in npz": ("npz", {"x": np.zeros(3, "V1")}, "the array 'x' is of .*V1"),
    "large numbers beside floats": ("npy", [2**53 + 1, 0.5], "where the list has 9007199254740993"),
    "large numbers beside small ones": ("npy", [2**63 + 1, -1], "the list has 9223372036854775809"),
    "numbers beside texts": ("npy", [1, "a"], "'1' where the list has 1"),
    "NUL at the end": ("npy", [b"a\0"], "would have b'a'"),
    "a large number": ("npy", 10**400, "Python objects"),
    "alpha in jpg": ("jpg", with_alpha(0), "transparent pixels, which JPEG cannot"),
    "alpha in ppm": ("ppm", with_alpha(254), "transparent pixels, which PPM cannot"),
    "alpha of an array": ("jpg", np.zeros((2, 2, 4), np.uint8), "transparent pixels"),
    "alpha of a palette": ("jpg", transparent_palette(), "transparent pixels"),
    "16 bits in jpg": ("jpg", Image.new("I;16", (4, 3), 300), "mode I;16 .*8 bits"),
    "16 bits in webp": ("webp", Image.new("I;16", (4, 3), 300), "8 bits of WEBP"),
    "32 bits in ppm": ("ppm", Image.new("I", (4, 3), 300), "mode I have more than"),
    "floats in jpg": ("jpg", Image.new("F", (4, 3), 300), "mode F have more than"),
    "floats in png": ("png", Image.new("F", (4, 3), 300), "cannot write mode F"),
    "17 bits in png": ("png", Image.new("I", (4, 3), 1 << 16), "pixels from 65536 to 65536"),
    "below 0 in png": ("png", Image.new("I", (4, 3), -1), "pixels from -1 to -1"),
    **{
        f"frames in {field}": (field, frames(), "the image has 2 frames")
        for field in ("jpg", "png", "ppm", "webp")
    },
    "a name with NUL": ("npz", {"a\0b": np.zeros(1)}, r"'a\\x00b'; give a str without NUL"),
    "a name that is no str": ("npz", {1: np.zeros(1)}, "is 1; give a str"),
    "two names that are one": ("npz", {"a": [1], "a.npy": [2]}, "cannot distinguish the names 'a.npy' and 'a'"),
    "npz of an array": ("npz", np.zeros(3), "type ndarray; give a dict"),
    "npz of a list": ("npz", [np.zeros(3)], "type list; give a dict"),
    "keys that are one": ("json", {1: "a", "1": "b"}, "same text in JSON: 1, '1'"),
    "inner keys": ("json", [{"x": ({None: 1, "null": 2},)}], "same text in JSON"),
    "a text for JSON": ("json", "x", r"not JSON: .*json.dumps"),
    "half a surrogate pair": ("json", {"a": "\ud800"}, "unpaired surrogate"),
    "half a pair in a text": ("json", '"\\ud800"', "not JSON: .*unpaired surrogate"),
    "NaN in a text": ("json", "NaN", "not JSON: 'NaN'"),
    "too many levels": ("json", "[" * 501 + "]" * 501, "not JSON: .*500"),
    "levels": ("json", json.loads("[" * 501 + "]" * 501), "500"),
    "a number beyond floats": ("json.gz", [10**400], "."),
    "depth": ("json", deep_list(), "RecursionError"),
    "10**400": ("cls", 10**400, "has 1329 bits"),
    "10**5000": ("cls", 10**5000, "has 16610 bits"),
    "2**63": ("id", 1 << 63, "has 64 bits"),
    "txt of a number": ("txt", 5, "type int; give a str or bytes"),
    "a path for a picture": ("jpg", "a.jpg", "is a str; give an array"),
    "what raises": ("npy", Loud(), "RuntimeError: no array of this"),
    "in gz": ("x.npz.gz", [1], "give a dict"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_a_field_would_lose_is_refused(what: str) -> None:
    field, value, text = LOST[what]
    with pytest.raises(errors.BadField, match=f"^the field '{field}' cannot .*: .*{text}"):
        encoded(field, value)


def test_tensors_that_numpy_has_not_are_refused() -> None:
    torch = needs("torch")
    for value, text in (
        (torch.ones(3, requires_grad=True), "detach"),
        (torch.ones(3, dtype=torch.bfloat16), "BFloat16"),
        (torch.ones(3).to(torch.float8_e4m3fn), "Float8_e4m3fn"),
    ):
        for field, given in (("npy", value), ("npz", {"x": value}), ("x.npy.gz", value)):
            with pytest.raises(errors.BadField, match=f"'{field}' cannot be stored: .*{text}"):
                encoded(field, given)


def test_types_that_npy_has_not_are_refused() -> None:
    ml_dtypes = needs("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        array = np.zeros(3, getattr(ml_dtypes, name))
        inside = np.zeros(3, [("x", array.dtype)])
        for field, value in (("npy", array), ("npz", {"x": array}), ("npy", inside)):
            with pytest.raises(errors.BadField, match=f"is of .*{name}.*NumPy's format"):
                encoded(field, value)


def test_pictures_keep_what_their_format_has() -> None:
    def read(field: str, value: Any) -> Image.Image:
        return Image.open(io.BytesIO(encoded(field, value)))

    deep = np.array([[0, 255], [256, 65535]], np.int32)
    for image in (Image.fromarray(deep.astype(np.uint16)), Image.fromarray(deep)):
        assert np.array_equal(np.asarray(read("png", image)), deep)
    opaque = with_alpha(255)
    for field in ("jpg", "ppm"):
        assert read(field, opaque).mode == "RGB"
    hidden = with_alpha(0)
    for field in ("png", "webp"):
        assert np.array_equal(np.asarray(read(field, hidden)), np.asarray(hidden))
    profile = b"a profile"
    shown = Image.open(image_bytes(Image.new("RGB", (4, 3)), "JPEG", icc_profile=profile))
    for field in ("jpg", "png", "webp"):
        assert read(field, shown).info["icc_profile"] == profile
    cmyk = Image.open(image_bytes(Image.new("CMYK", (4, 3)), "JPEG", icc_profile=profile))
    assert "icc_profile" not in read("jpg", cmyk).info
    one = frames().copy()
    assert read("png", one).convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def test_values_that_are_missing_are_refused() -> None:
    pandas = needs("pandas")
    series = pandas.Series([2**53 + 1, None], dtype="Int64")
    missing = [series, series.array, [series, series], pandas.DataFrame({0: series})]
    missing += [pandas.Series([True, None], dtype="boolean")]
    for value in missing:
        for field, given in (("npy", value), ("npz", {"x": value}), ("png", value)):
            with pytest.raises(errors.BadField, match=f"'{field}' cannot be stored: .*array"):
                encoded(field, given)
    mixed = pandas.DataFrame({0: [2**53 + 1, 2], 1: [0.5, 1]})
    with pytest.raises(errors.BadField, match="where the DataFrame has 9007199254740993"):
        encoded("npy", mixed)
    days = pandas.Series(pandas.to_datetime(["2026-01-01", None]))
    for value in (series[:1], pandas.Series([1.5, None]), days, pandas.DataFrame({0: days})):
        stored = np.load(io.BytesIO(encoded("npy", value)))
        assert stored.dtype == np.asarray(value).dtype
        assert stored.tobytes() == np.asarray(value).tobytes()


def test_nulls_of_arrow_are_refused() -> None:
    arrow = needs("pyarrow")
    array = arrow.array([5, None])
    for value in (array, [array], arrow.chunked_array([array]), arrow.table({"a": array})):
        with pytest.raises(errors.BadField, match="a mask or nulls"):
            encoded("npy", value)
    whole = np.load(io.BytesIO(encoded("npy", arrow.array([5, 2**62 + 1]))))
    assert whole.tolist() == [5, 2**62 + 1]


def test_nulls_of_polars_are_refused() -> None:
    polars = needs("polars")
    numbers, days = polars.Series([5, None]), polars.Series([None], dtype=polars.Date)
    for value in (numbers, [numbers], days, polars.DataFrame({"a": numbers})):
        for field, given in (("npy", value), ("npz", {"x": value}), ("png", value)):
            with pytest.raises(errors.BadField, match="a mask or nulls"):
                encoded(field, given)
    inside = polars.Series([[5, None]], dtype=polars.Array(polars.Int64, 2))
    for value, shown in ((inside, "None"), (polars.Series([{"a": 1}]), "{'a': 1}")):
        with pytest.raises(errors.BadField, match=f"where the Series has {shown}"):
            encoded("npy", value)
    for value in (polars.Series([5, 2**62 + 1]), polars.Series([1.5, 0.1], dtype=polars.Float32)):
        stored = np.load(io.BytesIO(encoded("npy", value)))
        assert stored.tolist() == value.to_list()


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_names_of_columns_are_not_lost(package: str) -> None:
    module = needs(package)
    make = {"pyarrow": "table"}.get(package, "DataFrame")
    table = getattr(module, make)({"wide": [1, 2], "high": [3, 4]})
    for field, given in (("npy", table), ("npz", {"x": table}), ("x.npy.gz", [table])):
        with pytest.raises(errors.BadField, match="names of columns .*: 'wide', 'high'; "):
            encoded(field, given)
    values = table.to_pandas().to_numpy() if package == "pyarrow" else table.to_numpy()
    stored = np.load(io.BytesIO(encoded("npy", values)))
    assert stored.tolist() == [[1, 3], [2, 4]]


def test_a_table_without_names_is_an_array() -> None:
    pandas = needs("pandas")
    stored = np.load(io.BytesIO(encoded("npy", pandas.DataFrame([[1, 2], [3, 4]]))))
    assert stored.tolist() == [[1, 2], [3, 4]]
    record = np.rec.array([(1, 2.0)], dtype=[("columns", "i4"), ("null_count", "f8")])
    assert np.load(io.BytesIO(encoded("npy", record))).tolist() == [(1, 2.0)]


@pytest.mark.parametrize(
    "shape", [(), (5,), (4, 5, 1), (3, 4, 5), (4, 5, 0), (1, 4, 5, 3), (0, 5, 3), (4, 0)]
)
def test_arrays_that_are_no_pictures_are_refused(shape: tuple[int, ...]) -> None:
    for field in ("png", "jpg", "ppm", "webp"):
        with pytest.raises(errors.BadField, match="(give an image .H, W.|has no pixels)"):
            encoded(field, np.zeros(shape, np.uint8))


def test_a_transparent_colour_is_kept() -> None:
    image = Image.new("RGB", (2, 1), (5, 6, 7))
    image.putpixel((1, 0), (9, 9, 9))
    keyed = Image.open(image_bytes(image, "PNG", transparency=(5, 6, 7)))
    for field in ("png", "webp"):
        stored = Image.open(io.BytesIO(encoded(field, keyed))).convert("RGBA")
        assert [stored.getpixel((x, 0)) for x in (0, 1)] == [(5, 6, 7, 0), (9, 9, 9, 255)]


def test_pictures_that_may_have_been_turned_are_refused() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("JPEG", "PNG"):
        photo = Image.open(image_bytes(Image.new("RGB", (32, 16)), kind, exif=exif))
        for made in (photo.rotate(-90, expand=True), photo.resize((8, 8)), photo.convert("L")):
            for field in ("jpg", "png", "webp", "ppm"):
                with pytest.raises(errors.BadField, match=r"PIL.ImageOps.exif_transpose\(\)"):
                    encoded(field, made)
        upright: Any = ImageOps.exif_transpose(photo)
        assert Image.open(io.BytesIO(encoded("png", upright.convert("L")))).size == (16, 32)
        photo.thumbnail((8, 8))  # resizes the image in place, without turning it
        assert Image.open(io.BytesIO(encoded("png", photo))).size == (4, 8)


@pytest.mark.parametrize("orientation", range(10))
def test_pictures_of_phones_are_turned(orientation: int) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :16] = (255, 0, 0)
    pixels[8:, 16:] = (0, 0, 255)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind in ("JPEG", "PNG"):
        given = image_bytes(Image.fromarray(pixels), kind, exif=exif)
        wanted = np.asarray(ImageOps.exif_transpose(Image.open(given)).convert("RGB")).astype(int)
        for field in ("jpg", "png", "ppm", "webp"):
            stored = Image.open(io.BytesIO(encoded(field, Image.open(given))))
            assert stored.getexif().get(0x0112, 1) == 1
            assert stored.size == wanted.shape[1::-1]
            assert np.abs(np.asarray(stored.convert("RGB")) - wanted).mean() <= 5


def test_names_that_numpy_takes_for_options_are_names_of_arrays() -> None:
    arrays = {name: np.arange(i) for i, name in enumerate(("file", "allow_pickle", "args", "", "ö"))}
    made = encoded("npz", arrays)
    assert made == encoded("npz", arrays)
    loaded = np.load(io.BytesIO(made))
    assert loaded.files == list(arrays)
    for name, array in arrays.items():
        assert np.array_equal(loaded[name], array)
    stream = io.BytesIO()
    np.savez_compressed(stream, x=np.arange(9.0), y=np.zeros((2, 0)))
    assert encoded("npz", {"x": np.arange(9.0), "y": np.zeros((2, 0))}) == stream.getvalue()


def test_buffers_of_values_are_arrays() -> None:
    array = np.arange(6, dtype=np.float32)
    assert np.array_equal(np.load(io.BytesIO(encoded("npy", memoryview(array)))), array)
    assert encoded("npy", memoryview(b"as it is")) == b"as it is"
    assert encoded("bin", memoryview(array)) == array.tobytes()


def test_lists_that_an_array_holds_are_stored() -> None:
    for value in (
        *([1, 2.5], [True, 2], [[1, 2], [3, 4]], [float("nan"), 1], [2**64 - 1], [1j, 2], []),
        *(["a", "bc"], 3, 2.5, [np.int64(2**62 + 1), 3], [np.float32(0.1), 0.5]),
    ):
        stored = np.load(io.BytesIO(encoded("npy", value)))
        assert np.array_equal(stored, np.asarray(value), equal_nan=stored.dtype.kind == "f")


@pytest.mark.parametrize("kind", ["JPG", "seg.png", ".png", 3])
def test_encoders_that_no_field_would_come_to_are_refused(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="last parts of field"):
        ShardWriter(tmp_path / "a-%d.tar", encoders={kind: lambda value: b""})
    with pytest.raises(errors.InvalidArgument, match="encoder"):
        TarWriter(tmp_path / "a.tar", encoders={"png": 3})  # type: ignore[dict-item]


def test_what_an_encoder_raises_names_the_field(tmp_path: Path) -> None:
    def raising(error: Exception) -> Any:
        def encode(value: Any) -> bytes:
            raise error

        return {"own": encode}

    for error, text in (
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError: "),
        (errors.BadField("bad"), "bad"),
    ):
        with pytest.raises(errors.BadField, match=f"'a.own' cannot be stored: {text}$"):
            encoded("a.own", 1, raising(error))
    for passed in (MemoryError(), errors.StaleIndex("changed")):
        with pytest.raises(type(passed)):
            encoded("a.own", 1, raising(passed))


UNCLOSED = """
from shardwise import ShardWriter, TarWriter
folder = os.path.dirname(sys.argv[1])
def fill(sink, count=5):
    for i in range(count):
        sink.write({"__key__": f"{i}", "cls": i})
    return sink
made = lambda name, **more: ShardWriter(f"{folder}/{name}-%d.tar", max_samples=2, **more)
fill(made("dropped", index=f"{folder}/dropped.idx"))
fill(TarWriter(f"{folder}/one.tar"))
empty = made("empty")
closed = fill(made("closed"))
closed.close()
try:
    with made("left") as left:
        fill(left)
        raise KeyError
except KeyError:
    pass
child = fill(made("forked"))
if os.fork() == 0:
    del child
    sys.exit()
os.wait()
child.close()
at_end = fill(made("end"), 4)
"""


def test_a_writer_that_is_not_closed_says_what_is_lost(index: Path) -> None:
    done = run_script(index, UNCLOSED)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"UserWarning: (.*)", done.stderr)
    at = index.parent
    named = [
        (f"'{at}/dropped-%d.tar'", "last 1 of its 5 samples", f"index '{at}/dropped.idx'"),
        (f"'{at}/one.tar'", "last 5 of its 5 samples"),
        (f"'{at}/end-%d.tar'", "last 2 of its 4 samples"),
    ]
    assert len(told) == len(named)
    for text, parts in zip(told, named):
        assert all(part in text for part in (*parts, "not closed: ", "; ", "call close()")), text
    assert len(shardwise.open(at / "forked-{0..2}.tar", index_directory=at / "kept")) == 5


def test_threads_share_a_writer(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "a-%d.tar", max_samples=7, index=tmp_path / "a.idx")
    begin = threading.Barrier(4)

    def fill(thread: int) -> None:
        begin.wait()
        for i in range(200):
            key = f"{thread}-{i}"
            sink.write({"__key__": key, "txt": key * 50})
            assert len(sink.paths) <= sink.num_samples // 7

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(fill, range(4)))
    sink.close()
    ds = shardwise.open(tmp_path / "a.idx")
    assert len(ds) == sink.num_samples == 800
    assert all(sample.text("txt") == sample.key * 50 for sample in ds)


FORKED = """
sink = shardwise.ShardWriter(sys.argv[1] + "-%d.tar")
sink.write({"__key__": "parent", "txt": "x"})
if os.fork() == 0:
    for use in (lambda: sink.write({"__key__": "child", "txt": "x"}), sink.close):
        try:
            use()
        except shardwise.errors.Unsupported as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
sink.close()
"""


def test_a_forked_child_does_not_use_a_writer(index: Path) -> None:
    done = run_script(index, FORKED)
    assert done.stdout.count("in a forked child; ") == 2, done.stdout + done.stderr
    written = shardwise.open(f"{index}-0.tar", index_directory=index.parent / "kept")
    assert [sample.key for sample in written] == ["parent"]


def test_a_set_without_samples_has_no_index(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar") as sink:
        pass
    assert sink.paths == []
    for make in (
        lambda: ShardWriter(tmp_path / "a-%d.tar", index=tmp_path / "a.idx"),
        lambda: TarWriter(tmp_path / "a.tar"),
    ):
        with pytest.raises(errors.InvalidArgument, match="^no sample was written: '.*/a"), make():
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_shorter_set_replaces_a_longer_one(tmp_path: Path) -> None:
    for count, replace in ((5, False), (2, True)):
        with ShardWriter(tmp_path / "a-%d.tar", max_samples=1, replace=replace) as sink:
            for i in range(count):
                sink.write({"__key__": f"{i}", "txt": f"{count}"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-0.tar", "a-1.tar"]
    with pytest.raises(errors.InvalidArgument, match="an earlier set"):
        ShardWriter(tmp_path / "a-%d.tar", replace=True).close()
