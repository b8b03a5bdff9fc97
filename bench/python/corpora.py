"""Shards that benches write once: tars, and noisy JPEGs of 500x375 like those of ImageNet."""

from __future__ import annotations

import io
import multiprocessing
import os
import tarfile
from collections.abc import Iterable

SHARDS = 16
QUALITY = 88
"""JPEGs of 73 KB."""
LARGE_QUALITY = 92
"""JPEGs of about 100 KB."""


def write_tar(path: str, members: Iterable[tuple[str, bytes]]) -> None:
    """Writes a tar with these names and contents. The file appears when it is complete."""
    with tarfile.open(path + ".part", "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    os.rename(path + ".part", path)


def picture(number: int, quality: int = QUALITY) -> bytes:
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(number)
    rough = np.clip(128 + 50 * random.normal(size=(24, 32, 3)), 0, 255).astype(np.uint8)
    smooth = Image.fromarray(rough).resize((500, 375), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth, np.float32) + random.normal(0, 12, (375, 500, 3))
    data = io.BytesIO()
    pixels = np.clip(noisy, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(data, "JPEG", quality=quality)
    return data.getvalue()


def _large_picture(number: int) -> bytes:
    return picture(number, LARGE_QUALITY)


def picture_shards(
    folder: str, count: int, shards: int = SHARDS, large: bool = False, classes: int = 1000
) -> list[str]:
    """Makes shards with pictures (jpg) and classes (cls), unless they exist. Returns their paths.
    With 0 classes, each picture's class is its number."""
    size = count // shards
    os.makedirs(folder, exist_ok=True)
    paths = [f"{folder}/train-{size}-{shard:06}.tar" for shard in range(shards)]
    with multiprocessing.Pool() as pool:
        for shard, path in enumerate(paths):
            if os.path.exists(path):
                continue
            numbers = range(shard * size, (shard + 1) * size)
            members: list[tuple[str, bytes]] = []
            made = pool.imap(_large_picture if large else picture, numbers, 8)
            for number, data in zip(numbers, made, strict=True):
                label = b"%d" % (number % classes if classes else number)
                members += [(f"{number:08}.jpg", data), (f"{number:08}.cls", label)]
            write_tar(path, members)
    return paths
