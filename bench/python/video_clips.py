"""Random clips of videos: shardwise.Loader beside torchcodec and decord.

    python bench/python/video_clips.py FOLDER [--videos 16] [--seconds 10] [--size 640x360]
        [--threads 1 2] [--rounds 5]

Makes a shard of H.264 videos in MP4 (30 frames a second, a key frame every 250) in FOLDER, unless
it exists. An epoch reads one clip of each video: 16 frames, every second one, from a random frame
on, as RGB in full size. All packages read the same frames, from bytes of the mapped shard, and the
script compares their pictures with those of Loader first. The rows take turns; a rate is that of an
epoch, in frames of clips per second.

    Loader, N               a video column, N threads
    torchcodec exact, N     VideoDecoder(bytes) and get_frames_at(), one video a thread
    torchcodec approximate, N   the same without its scan of the file (seek_mode="approximate")
    decord, N               VideoReader(bytes) and get_batch(), one video a thread

Each decoder uses one thread of FFmpeg. A package that cannot be imported is left out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import io
import itertools
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import shardwise
from shardwise import columns
from shardwise.transforms import VideoClip
from tables import Table, write_json

FRAMES_PER_SECOND = 30
CLIP = VideoClip(frames=16, every=2, start="random")
BATCH = 4
LARGEST_DIFFERENCE = 6.0  # of means of pictures: packages convert colours differently

Read = Callable[[Any, list[int]], Any]
"""Returns the frames of a video (bytes) at these numbers, [T, H, W, 3]."""


def make_videos(path: str, videos: int, seconds: int, size: str) -> None:
    """Writes a shard of moving, noisy test pictures."""
    part = f"{path}.part"
    with tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(videos):
            source = f"testsrc2=size={size}:rate={FRAMES_PER_SECOND}:duration={seconds}"
            video = f"{path}.mp4"
            subprocess.run(
                ["ffmpeg", "-loglevel", "error", "-y", "-f", "lavfi", "-i"]
                + [f"{source},noise=alls=8:allf=t:all_seed={number}"]
                + ["-c:v", "libx264", "-preset", "medium", "-g", "250", "-pix_fmt", "yuv420p"]
                + ["-movflags", "+faststart", video],
                check=True,
            )
            tar.add(video, arcname=f"{number:06}.mp4")
            os.remove(video)
    os.rename(part, path)


def loader(data: shardwise.Dataset, threads: int, *more: Any) -> shardwise.Loader:
    return shardwise.Loader(
        data,
        columns=[columns.video("mp4", CLIP), *more],
        order=shardwise.Order(seed=17),
        batch_size=BATCH,
        threads=threads,
    )


def clips(data: shardwise.Dataset) -> Iterator[tuple[int, list[int], Any]]:
    """Yields each sample of epoch 0 with the numbers of its clip's frames, and the clip as Loader
    reads it."""
    for batch in loader(data, 1, columns.video_times("mp4", CLIP)):
        for sample, times, frames in zip(batch.samples, batch["mp4_times"], batch["mp4"]):
            numbers = [round(float(seconds) * FRAMES_PER_SECOND) for seconds in times]
            yield int(sample), numbers, np.array(frames)


def peers() -> dict[str, Read]:
    found: dict[str, Read] = {}
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, RuntimeError, OSError) as error:
        print(f"without torchcodec: {str(error).splitlines()[0]}")
    else:
        for mode in ("exact", "approximate"):

            def read(video: Any, numbers: list[int], mode: str = mode) -> Any:
                decoder = VideoDecoder(
                    video, dimension_order="NHWC", num_ffmpeg_threads=1, seek_mode=mode
                )
                return decoder.get_frames_at(numbers).data

            found[f"torchcodec {mode}"] = read
    try:
        import decord
    except (ImportError, OSError) as error:
        print(f"without decord: {str(error).splitlines()[0]}")
    else:

        def read_decord(video: Any, numbers: list[int]) -> Any:
            reader = decord.VideoReader(io.BytesIO(video), num_threads=1)
            return reader.get_batch(numbers).asnumpy()

        found["decord"] = read_decord
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--videos", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--size", default="640x360")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    shard = f"videos-{options.videos}-{options.seconds}-{options.size}.tar"
    shard = os.path.join(options.folder, shard)
    if not os.path.exists(shard):
        make_videos(shard, options.videos, options.seconds, options.size)
    data = shardwise.open([shard])

    wanted = list(clips(data))
    reads = peers()
    for name, read in reads.items():
        for sample, numbers, frames in wanted:
            other = np.asarray(read(data[sample].bytes("mp4"), numbers))
            if other.shape != np.moveaxis(frames, -3, -1).shape:
                raise ValueError(f"{name}: {other.shape}")
            difference = np.abs(np.moveaxis(frames, -3, -1).astype(float) - other)
            worst = float(difference.mean(axis=(1, 2, 3)).max())
            if worst > LARGEST_DIFFERENCE:
                raise ValueError(f"{name}: other pictures of sample {sample}: {worst:.1f} of 255")

    def own_epoch(threads: int) -> Callable[[], int]:
        return lambda: sum(
            len(batch["mp4"]) * CLIP.frames for batch in loader(data, threads)
        )

    def peer_epoch(read: Read, threads: int) -> Callable[[], int]:
        def one(clip: tuple[int, list[int], Any]) -> int:
            return len(read(data[clip[0]].bytes("mp4"), clip[1]))

        def epoch() -> int:
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                return sum(pool.map(one, wanted))

        return epoch

    rows = {f"Loader, {n}": own_epoch(n) for n in options.threads}
    for (name, read), threads in itertools.product(reads.items(), options.threads):
        rows[f"{name}, {threads}"] = peer_epoch(read, threads)
    table = Table(f"clips of {CLIP.frames} frames of {options.size}, H.264", "frames/s", 0)
    for name in rows:
        threads = name.rsplit(", ", 1)[1]
        table.references[name] = f"Loader, {threads}"
    for _ in range(options.rounds):
        for name, run in rows.items():
            begin = time.perf_counter()
            count = run()
            table.add(name, count / (time.perf_counter() - begin))
    table.show()
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
