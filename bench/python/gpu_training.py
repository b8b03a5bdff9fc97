"""How well loaders keep a GPU busy, and how they scale with threads.

    python bench/python/gpu_training.py WORK [--task train] [--task threads] [--pictures 8192]
        [--workers 15] [--rounds 3]

WORK is a folder, in which 16 shards of noisy JPEGs (500x375, 73 KB) are made once.

`train` runs steps of ResNet-50 (bfloat16 autocast, batches of 256, random crops to 224) on the GPU.
Each loader in turn feeds it. The limit is a row in which every step uses the same resident batch.
It also shows the rate of each loader without the model. `threads` shows the rates of decoding on
the CPU alone, and of reading samples of 300 bytes, with 1 to 16 threads or workers. Both tasks
print medians over the rounds. A first round is not measured.

Needs torch and torchvision, and webdataset for its rows. `train` needs a GPU.
"""

from __future__ import annotations

import argparse
import collections
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import shardwise
import torch
from corpora import picture_shards, write_tar
from shardwise import columns
from shardwise.transforms import ImageTransform, RandomResizedCrop
from tables import Table, write_json

SIDE = 224
HOW = ImageTransform(random_resized_crop=RandomResizedCrop(SIDE), horizontal_flip=0.5)

Epoch = Callable[[], Iterator[Any]]


def make_tiny_shards(folder: str) -> list[str]:
    paths = [f"{folder}/tiny-{shard:06}.tar" for shard in range(20)]
    for shard, path in enumerate(paths):
        if not os.path.exists(path):
            names = (f"{shard:03}{number:06}.bin" for number in range(25_000))
            write_tar(path, ((name, os.urandom(300)) for name in names))
    return paths


def own_loader(shards: list[str], batch: int, threads: int, pinned: bool = False) -> Any:
    return shardwise.Loader(
        shardwise.open(shards),
        columns=[columns.image("jpg", HOW), columns.integer("cls")],
        order=shardwise.Order(seed=1),
        batch_size=batch,
        threads=threads,
        memory=shardwise.torch_memory(pinned=True) if pinned else None,
    )


def own(shards: list[str], batch: int, threads: int, pinned: bool) -> Epoch:
    loader = own_loader(shards, batch, threads, pinned)

    def epoch() -> Iterator[Any]:
        copies: collections.deque[Any] = collections.deque()  # each copy keeps its batch alive
        for rows in loader:
            tensors = rows.tensors()
            yield tensors["jpg"].cuda(non_blocking=pinned), tensors["cls"].cuda(non_blocking=pinned)
            if pinned:
                done = torch.cuda.Event()
                done.record()
                copies.append((done, rows))
                while copies and (copies[0][0].query() or len(copies) > 3):
                    copies[0][0].synchronize()
                    copies.popleft()

    return epoch


def own_nvjpeg(shards: list[str], batch: int, threads: int) -> Epoch:
    """Reads bytes with shardwise. Decodes them on the GPU with torchvision (nvJPEG)."""
    from torchvision.io import decode_jpeg
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(SIDE, antialias=True)
    loader = shardwise.Loader(
        shardwise.open(shards),
        columns=[columns.bytes("jpg"), columns.integer("cls")],
        order=shardwise.Order(seed=1),
        batch_size=batch,
        threads=threads,
    )

    def epoch() -> Iterator[Any]:
        for rows in loader:
            data = rows.tensors()["jpg"]
            images = decode_jpeg([data[i] for i in range(len(rows))], device="cuda")
            yield torch.stack([crop(image) for image in images]), rows.torch("cls").cuda()

    return epoch


def webdataset(shards: list[str], batch: int, workers: int, pinned: bool) -> Any:
    import webdataset as wds
    from torchvision import transforms

    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )
    data = (
        wds.WebDataset(shards, shardshuffle=100, seed=1, empty_check=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(augment, lambda label: label)
        .batched(batch)
    )
    return wds.WebLoader(
        data,
        batch_size=None,
        num_workers=workers,
        pin_memory=pinned,
        persistent_workers=True,
        prefetch_factor=4,
    )


def resident(batches: int, batch: int) -> Epoch:
    images = torch.randint(0, 255, (batch, 3, SIDE, SIDE), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return lambda: iter([(images, labels)] * batches)


def on_gpu(loader: Any) -> Epoch:
    def epoch() -> Iterator[Any]:
        for images, labels in loader:
            yield images.cuda(non_blocking=True), torch.as_tensor(labels).cuda(non_blocking=True)

    return epoch


def make_step() -> Callable[[Any, Any], None]:
    import torchvision

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        inputs = images.float().sub(117).div(58).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def rate(epoch: Epoch, use: Callable[[Any, Any], None] | None) -> float:
    """Returns rows per second of an epoch. Batches are (images, labels), or batches of
    shardwise."""
    start, rows = time.perf_counter(), 0
    for batch in epoch():
        if use is not None:
            use(*batch)
        rows += len(batch[0]) if isinstance(batch, (tuple, list)) else len(batch)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return rows / (time.perf_counter() - start)


def train(shards: list[str], count: int, workers: int, rounds: int) -> list[Table]:
    batch = 256
    rows: dict[str, Epoch] = {
        "a resident batch": resident(count // batch, batch),
        "shardwise, pinned": own(shards, batch, workers, pinned=True),
        "shardwise": own(shards, batch, workers, pinned=False),
        "shardwise, decoded by nvJPEG": own_nvjpeg(shards, batch, 2),
        "webdataset, pinned": on_gpu(webdataset(shards, batch, workers, pinned=True)),
    }
    step = make_step()
    for epoch in rows.values():
        rate(epoch, step)
    trained = Table(f"steps of ResNet-50, {workers} threads or workers", "images/s")
    fed = Table("the loaders without the model", "images/s", reference="shardwise")
    for _ in range(rounds):
        for name, epoch in rows.items():
            trained.add(name, rate(epoch, step))
            if name != "a resident batch":
                fed.add(name, rate(epoch, None))
    return [trained, fed]


def threads(shards: list[str], tiny: list[str], rounds: int) -> list[Table]:
    data = shardwise.open(tiny)
    pictures = Table("random crops of pictures, by threads or workers", "images/s")
    samples = Table("samples of 300 bytes, by threads", "samples/s")
    for count in (1, 2, 4, 8, 16):
        if count > (os.cpu_count() or 1):
            break
        rows = shardwise.Loader(
            data,
            columns=[columns.bytes("bin")],
            order=shardwise.Order(seed=1),
            batch_size=1024,
            threads=count,
        )
        measured: list[tuple[Table, str, Any]] = [
            (pictures, f"shardwise, {count}", own_loader(shards, 128, count)),
            (pictures, f"webdataset, {count}", webdataset(shards, 128, count, False)),
            (samples, f"shardwise, {count}", rows),
        ]
        for table, name, loader in measured:
            for value in [rate(loader.__iter__, None) for _ in range(rounds + 1)][1:]:
                table.add(name, value)
    return [pictures, samples]


def main() -> None:
    parser = argparse.ArgumentParser(description="loaders that feed a GPU")
    parser.add_argument("work")
    parser.add_argument("--task", action="append", choices=["train", "threads"])
    parser.add_argument("--pictures", type=int, default=8192)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    shards = picture_shards(options.work, options.pictures)
    tasks = options.task or ["train", "threads"]
    tables: list[Table] = []
    if "train" in tasks:
        tables += train(shards, options.pictures, options.workers, options.rounds)
    if "threads" in tasks:
        tables += threads(shards, make_tiny_shards(options.work), options.rounds)
    for table in tables:
        table.show()
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
