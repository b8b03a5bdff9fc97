"""Trains a small network on pictures in buckets of aspect ratios: the pictures of a batch have one size.

    python buckets.py --out run
    python buckets.py train.idx --out run
    torchrun --nproc-per-node 2 buckets.py train.idx --out run --resume

The index needs the metadata columns width and height, as img2dataset.py makes them, and samples the fields jpg
and json. Without an index, the program first makes up some pictures.
Exact: each picture comes once in an epoch, and no picture is padded. Ranks have equally many steps. Batches are
full, except some at the end of an epoch: samples that do not fill a batch are held over to the next window.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks.
"""

import argparse
import os
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform


def made_up_index(folder):
    import made_up

    index = folder / "made-up.idx"
    if not index.exists():
        shardwise.index(index, made_up.make(folder / "made-up"), columns=["json:$.width", "json:$.height"])
    return index


def train(options):
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    options.out.mkdir(exist_ok=True)
    if options.index is None:
        if is_first:
            made_up_index(options.out)
        if dist.is_initialized():
            dist.barrier()
        options.index = made_up_index(options.out)

    buckets = shardwise.aspect_groups(5, pixels=64 * 64, batch_size=options.batch_size, window=1024)
    loader = shardwise.Loader(
        shardwise.open(options.index),
        columns=[columns.image("jpg", ImageTransform(resize="group")), columns.text("json:$.caption", missing="")],
        order=shardwise.Order(seed=17),
        by_group=buckets,
    )
    torch.manual_seed(17)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(),
                                torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = options.out / "checkpoint.pt"
    if options.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    ddp = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model

    steps = 0
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        sizes = Counter()
        for batch in loader:
            pictures = batch.torch("jpg").float() / 255  # [N, 3, height, width] of the batch's bucket
            sizes[batch.group] += len(batch)
            words = torch.tensor([float(len(caption.split())) for caption in batch.text("caption")])
            count = torch.tensor(len(batch))
            world_size = 1
            if dist.is_initialized():  # batches differ in size between ranks: weigh samples equally
                dist.all_reduce(count)
                world_size = dist.get_world_size()
            loss = (ddp(pictures).flatten() - words).square().sum() / count * world_size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.stop_after:
                break
        state = loader.state_dict()  # all ranks call it
        if is_first:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state},
                       checkpoint)
        if steps == options.stop_after:
            break
        proof = loader.prove()
        if is_first:
            print(f"pictures of this rank by size: {dict(sorted(sizes.items()))}; {proof}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8, help="of each rank")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    train(options)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
