"""Columns of images, videos and sounds, over the given files."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_shard

import shardwise
from shardwise import Loader, Order, columns, errors
from shardwise.transforms import (
    AudioClip,
    ColourJitter,
    ImageDecoding,
    ImageTransform,
    Normalize,
    Padding,
    RandomErasing,
    RandomResizedCrop,
    VideoClip,
)


@pytest.fixture
def media(corpus: Path) -> Path:
    folder = corpus / "corpus" / "media"
    if not folder.is_dir():
        pytest.skip(f"needs media files; skipped because {folder} does not exist")
    return folder


def dataset(folder: Path, samples: list[tuple[str, dict[str, bytes]]]) -> shardwise.Dataset:
    write_shard(folder / "media.tar", samples)
    shardwise.index(folder / "media.idx", folder / "media.tar", threads=0)
    return shardwise.open(folder / "media.idx")


@pytest.fixture
def pictures(tmp_path: Path, media: Path) -> shardwise.Dataset:
    """Twelve samples with the same picture, as PPM and as JPEG."""
    fields = {kind: (media / f"testorig.{kind}").read_bytes() for kind in ("ppm", "jpg")}
    return dataset(tmp_path, [(f"k{i}", fields) for i in range(12)])


@pytest.fixture
def pixels(media: Path) -> np.ndarray[Any, Any]:
    """The picture's pixels from its PPM: [H, W, 3]."""
    data = (media / "testorig.ppm").read_bytes()
    magic, width, height, most = data.split(maxsplit=4)[:4]
    assert magic == b"P6" and most == b"255"
    size = int(width) * int(height) * 3
    return np.frombuffer(data[-size:], np.uint8).reshape(int(height), int(width), 3)


def images(
    data: shardwise.Dataset,
    transform: ImageTransform = ImageTransform(),
    field: str = "ppm",
    **options: Any,
) -> shardwise.Batch:
    loader = Loader(
        data,
        columns=[columns.image(field, transform).named("image")],
        order=Order("sequential"),
        batch_size=12,
        **options,
    )
    batch = loader.next()
    assert batch is not None
    return batch


def test_an_image_has_the_pixels_of_its_file(
    pictures: shardwise.Dataset, pixels: np.ndarray[Any, Any]
) -> None:
    first = images(pictures)["image"]
    assert first.shape == (12, 3, *pixels.shape[:2]) and first.dtype == np.uint8
    assert (first == pixels.transpose(2, 0, 1)).all()
    last = images(pictures, ImageTransform(layout="channels_last"), "gif;ppm")["image"]
    assert last.shape == (12, *pixels.shape) and (last == pixels).all()
    jpeg = images(pictures, ImageTransform(layout="channels_last"), "jpg")["image"]
    assert np.abs(jpeg.astype(int) - pixels).mean() < 8


def test_crops_and_flips_are_parts_of_the_picture(
    pictures: shardwise.Dataset, pixels: np.ndarray[Any, Any]
) -> None:
    height, width = pixels.shape[:2]
    crop = images(pictures, ImageTransform(centre_crop=(63, 33), layout="channels_last"))["image"]
    top, left = (height - 63) // 2, (width - 33) // 2
    assert (crop == pixels[top : top + 63, left : left + 33]).all()
    flipped = images(
        pictures, ImageTransform(horizontal_flip=1, vertical_flip=1, layout="channels_last")
    )["image"]
    assert (flipped == pixels[::-1, ::-1]).all()
    padded = images(
        pictures,
        ImageTransform(padding=Padding(1, 2, 3, 4), fill=(9, 8, 7), layout="channels_last"),
    )["image"]
    assert (padded[:, 1 : 1 + height, 2 : 2 + width] == pixels).all()
    assert padded.shape[1:3] == (height + 4, width + 6) and padded[0, 0, 0].tolist() == [9, 8, 7]


def test_types_and_normalisation(pictures: shardwise.Dataset, pixels: np.ndarray[Any, Any]) -> None:
    plain = (pixels.astype(np.float32) / 255).transpose(2, 0, 1)
    assert np.allclose(images(pictures, ImageTransform(type="float32"))["image"], plain, atol=1e-6)
    half = images(pictures, ImageTransform(type="float16"))["image"]
    assert half.dtype == np.float16 and np.allclose(half, plain, atol=1e-3)
    bits = images(pictures, ImageTransform(type="bfloat16"))["image"]
    assert bits.dtype == np.uint16
    assert np.allclose((bits.astype(np.uint32) << 16).view(np.float32), plain, atol=4e-3)
    normal = Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    expected = (plain - np.array(normal.mean)[:, None, None]) / np.array(normal.std)[:, None, None]
    got = images(pictures, ImageTransform(normalize=normal, type="float32"))["image"]
    assert np.allclose(got, expected, atol=1e-5)


def test_random_steps_do_not_depend_on_threads(pictures: shardwise.Dataset) -> None:
    transform = ImageTransform(
        random_resized_crop=RandomResizedCrop(48, scale=(0.2, 0.9)),
        horizontal_flip=0.5,
        colour_jitter=ColourJitter(0.8, (0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1)),
        grayscale=0.2,
        random_erasing=RandomErasing(0.5, value=0.5),
        type="float32",
    )
    batches = [
        images(pictures, transform, "jpg", threads=threads)["image"] for threads in (0, 1, 3)
    ]
    assert batches[0].shape == (12, 3, 48, 48)
    assert (batches[0] == batches[1]).all() and (batches[0] == batches[2]).all()
    assert len({row.tobytes() for row in batches[0]}) == 12


def test_resizes(pictures: shardwise.Dataset, pixels: np.ndarray[Any, Any]) -> None:
    assert images(pictures, ImageTransform(resize=(20, 30), filter="bicubic"))["image"].shape[
        2:
    ] == (20, 30)
    height, width = pixels.shape[:2]
    shape = images(pictures, ImageTransform(resize_shorter_side=40))["image"].shape
    assert min(shape[2:]) == 40 and max(shape[2:]) == 40 * max(height, width) // min(height, width)
    small = Loader(
        pictures,
        columns=[columns.image("jpg", ImageTransform(resize=28), ImageDecoding(scaling="fast"))],
    )
    exact = Loader(pictures, columns=[columns.image("jpg", ImageTransform(resize=28))])
    fast_batch, exact_batch = small.next(), exact.next()
    assert fast_batch is not None and exact_batch is not None
    difference = np.abs(fast_batch["jpg"].astype(int) - exact_batch["jpg"])
    assert 0 < difference.mean() < 12


def test_mixed_images(pictures: shardwise.Dataset, pixels: np.ndarray[Any, Any]) -> None:
    batch = images(
        pictures, ImageTransform(centre_crop=32), mix=shardwise.Mixup("image", cutmix_alpha=1.0)
    )
    assert batch["image_lambda"].shape == (12,) and batch["image_lambda"].dtype == np.float32
    assert batch["image_partner"].tolist() == [11, *range(11)]


def test_damage_is_forgiven_and_counted_unless_strict(tmp_path: Path, media: Path) -> None:
    whole = (media / "testorig.jpg").read_bytes()
    data = dataset(tmp_path, [("k0", {"jpg": whole[:-2]})])
    loader = Loader(data, columns=[columns.image()])
    assert loader.next() is not None
    (kind,) = loader.stats().forgiven
    assert kind.images == 1 and "JPEG" in kind.kind and "k0" in kind.first_sample
    strict = Loader(data, columns=[columns.image("jpg", decoding=ImageDecoding(strict=True))])
    with pytest.raises(errors.BadField, match="k0"):
        strict.next()
    small = Loader(data, columns=[columns.image("jpg", decoding=ImageDecoding(max_pixels=100))])
    with pytest.raises(errors.BadField, match="100"):
        small.next()


def test_what_is_no_transform_is_named() -> None:
    for other in (len, {"resize": 4}, None):
        with pytest.raises(errors.InvalidArgument, match="columns.decoded"):
            columns.image("jpg", other)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument, match="ImageDecoding"):
            columns.image("jpg", decoding=other)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument, match="columns.decoded"):
            columns.video("mp4", transform=other)  # type: ignore[arg-type]
        for media in (columns.video, columns.video_times):
            with pytest.raises(errors.InvalidArgument, match="give a shardwise.transforms.VideoClip"):
                media("mp4", other)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument, match="give a shardwise.transforms.AudioClip"):
            columns.audio("wav", other)  # type: ignore[arg-type]


def test_a_column_of_the_index_is_told_from_a_field(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("k0", {"json": b'{"width": 3}'})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", columns=["json:$.width"], threads=0)
    loader = Loader(shardwise.open(tmp_path / "a.idx"), columns=[columns.integer("width")])
    text = r"no field 'width'.* json; 'width' is a metadata column .*metadata\(\)"
    with pytest.raises(errors.NotFound, match=text):
        loader.next()


def test_images_of_16_bits(tmp_path: Path) -> None:
    depth = np.array([[0, 255, 256], [1000, 4095, 65535]], np.uint16)
    pgm = b"P5 3 2 65535\n" + depth.astype(">u2").tobytes()
    data = dataset(tmp_path, [("k0", {"pgm": pgm}), ("k1", {"pgm": b"P5 3 2 255\n" + bytes(6)})])
    kept = ImageTransform(type="uint16")
    assert columns.image("pgm", kept).dtype == "uint16"
    batch = Loader(data, columns=[columns.image("pgm", kept)], batch_size=1, order=Order(kind="sequential")).next()
    assert batch is not None and batch["pgm"].dtype == np.uint16
    assert np.array_equal(batch["pgm"], np.broadcast_to(depth, (1, 3, 2, 3)))
    scaled = Loader(data, columns=[columns.image("pgm")], batch_size=1, order=Order(kind="sequential")).next()
    assert scaled is not None and scaled["pgm"][0, 0].tolist() == [[0, 1, 1], [4, 16, 255]]
    with pytest.raises(errors.BadField, match="8 bits, but uint16"):
        Loader(data[1:], columns=[columns.image("pgm", kept)]).next()
    with pytest.raises(errors.InvalidArgument, match="resize .* type uint16"):
        columns.image("pgm", ImageTransform(resize=4, type="uint16"))
    with pytest.raises(errors.InvalidArgument, match="videos .*to 8 bits"):
        columns.video("mp4", transform=kept)


def test_options_that_cannot_be_are_named() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"resize": -3}, r"resize=-3; .*in pixels, or \(height, width\)"),
        ({"resize": (1, 2, 3)}, r"resize=\(1, 2, 3\)"),
        ({"filter": "nearest"}, "filter='nearest'; .*: bilinear, bicubic"),
        ({"type": "int8"}, "choose one of: uint8, float32, float16, bfloat16, uint16"),
        ({"layout": 3}, "choose one of: channels_first, channels_last"),
        ({"normalize": True}, "give a shardwise.transforms.Normalize"),
        ({"random_resized_crop": 224}, "give a shardwise.transforms.RandomResizedCrop"),
        (
            {"colour_jitter": ColourJitter(brightness=2.0)},  # type: ignore[arg-type]
            r"brightness=2.0; give two numbers",
        ),
        ({"fill": (1, 2)}, "the three channels"),
        ({"horizontal_flip": "often"}, "horizontal_flip='often'"),
        ({"horizontal_flip": 2.0}, "2"),
    ]
    for options, text in cases:
        with pytest.raises(errors.InvalidArgument, match=text):
            columns.image("jpg", ImageTransform(**options))


def test_a_transform_of_another_library_is_told_where_it_goes() -> None:
    transform: Any = lambda image: image  # noqa: E731
    with pytest.raises(
        errors.InvalidArgument,
        match=r"columns\.decoded\(field, dtype, shape, "
        r"lambda data, random: t\(PIL\.Image\.open\(io\.BytesIO\(data\)\)\)\)",
    ):
        columns.image("jpg", transform)


def test_a_name_that_is_not_utf8_is_no_option() -> None:
    with pytest.raises(errors.InvalidArgument, match="choose one of: bilinear, bicubic"):
        columns.image("jpg", ImageTransform(filter="\udc80"))


def video_or_skip(*arguments: Any) -> columns.Column:
    try:
        return columns.video(*arguments)
    except errors.Unsupported as error:
        pytest.skip(f"needs video; skipped because {error}")


def test_a_package_without_video_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shardwise, "__path__", [])
    monkeypatch.delitem(sys.modules, "shardwise._video", raising=False)
    with pytest.raises(errors.Unsupported) as raised:
        columns.video("mp4")
    said = str(raised.value)
    assert "built without FFmpeg" in said and "FFmpeg's libraries" in said


def test_a_clip_has_the_frames_of_the_video(tmp_path: Path, media: Path) -> None:
    clip = VideoClip(frames=6, every=1)
    column = video_or_skip("mp4", clip)
    data = dataset(tmp_path, [("k0", {"mp4": (media / "nasa_13013.mp4").read_bytes()})])
    sound = AudioClip(sample_rate=8000, channels=1, seconds=0.5, fixed_length=True)
    loader = Loader(
        data,
        columns=[
            column,
            columns.video_times("mp4", clip),
            columns.audio("mp4", sound).named("sound"),
        ],
    )
    batch = loader.next()
    assert batch is not None
    frames = batch["mp4"][0]
    assert batch["mp4"].shape == (1, 6, 3, 270, 480)
    for number in range(6):
        with zipfile.ZipFile(media / f"nasa_13013.mp4.stream3.frame{number:06}.pt") as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data/0"))
            expected = np.frombuffer(archive.read(name), np.uint8).reshape(270, 480, 3)
        difference = np.abs(frames[number].transpose(1, 2, 0).astype(int) - expected)
        assert difference.mean() < 1 and difference.max() <= 16
    times = batch["mp4_times"]
    assert times.shape == (1, 6) and times.dtype == np.float64
    assert np.allclose(np.diff(times[0]), 1001 / 30000, atol=1e-4)
    assert batch["sound"].shape == (1, 1, 4000) and batch["sound"].dtype == np.float32
    assert np.abs(batch["sound"]).max() > 0.001


def test_random_clips_do_not_depend_on_threads(tmp_path: Path, media: Path) -> None:
    clip = VideoClip(frames=2, every=3, start="random")
    transform = ImageTransform(random_resized_crop=RandomResizedCrop((16, 24)))
    column = video_or_skip("mp4", clip, transform)
    video = (media / "nasa_13013.mp4").read_bytes()
    data = dataset(tmp_path, [(f"k{i}", {"mp4": video}) for i in range(4)])

    def clips(threads: int) -> tuple[bytes, list[list[float]]]:
        loader = Loader(data, columns=[column, columns.video_times("mp4", clip)], threads=threads)
        batch = loader.next()
        assert batch is not None and batch["mp4"].shape == (4, 2, 3, 16, 24)
        return batch["mp4"].tobytes(), batch["mp4_times"].tolist()

    first = clips(0)
    assert first == clips(2)
    assert len({times[0] for times in first[1]}) > 1


def test_shapes_of_images_in_a_batch_have_to_agree(tmp_path: Path) -> None:
    def pnm(width: int) -> bytes:
        out = io.BytesIO()
        out.write(b"P6\n%d 2\n255\n" % width)
        out.write(struct.pack("6B", *range(6)) * width)
        return out.getvalue()

    data = dataset(tmp_path, [(f"k{i}", {"ppm": pnm(2 + i)}) for i in range(2)])
    with pytest.raises(errors.InvalidArgument, match="k1"):
        Loader(data, columns=[columns.image("ppm")], order=Order("sequential")).next()
    assert Loader(data, columns=[columns.image("ppm", ImageTransform(resize=4))]).next() is not None
