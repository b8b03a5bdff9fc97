"""Trains on the output of img2dataset: chosen by the columns of its parquet files, with captions from the JSON.

    python img2dataset.py --out run
    python img2dataset.py laion/00000.tar laion/00001.tar --out run
    torchrun --nproc-per-node 2 img2dataset.py laion/*.tar --out run --resume

Samples need the fields jpg and json, as `img2dataset --output_format webdataset` writes them. The parquet file
beside a tar (00000.parquet beside 00000.tar) is attached to the index. If img2dataset saved further
columns, e.g. similarity, they can select samples as well. Without tars, the program first makes up some.
Exact: each chosen sample comes once in an epoch. The index has their widths and heights, so that the number
of steps is known before an image is read.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform, RandomResizedCrop


def make_index(index, shards):
    """Indexes the shards, with the widths and heights of their parquet files, or else of the JSON."""
    tables = [shard.with_suffix(".parquet") for shard in shards]
    if not all(table.exists() for table in tables):
        shardwise.index(index, shards, columns=["json:$.width", "json:$.height"])
        return
    from pyarrow import dataset

    shardwise.index(index, shards)
    rows = dataset.dataset(tables).scanner(columns=["key", "width", "height"]).to_reader()
    attached = shardwise.attach(index, rows, on="key", name="img2dataset")
    print(f"{attached.rows_without_sample} of {attached.num_rows} pictures were not downloaded", flush=True)


def train(options):
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    options.out.mkdir(exist_ok=True)

    index = options.out / "train.idx"
    if is_first and not index.exists():
        if not options.shards:
            import made_up

            options.shards = made_up.make(options.out / "made-up")
        make_index(index, options.shards)
    if dist.is_initialized():
        dist.barrier()
    data = shardwise.open(index).where("width >= 64 AND height >= 64 AND width < 3 * height")
    loader = shardwise.Loader(
        data,
        columns=[columns.image("jpg", ImageTransform(random_resized_crop=RandomResizedCrop(64))),
                 columns.text("json:$.caption", missing="")],
        order=shardwise.Order(seed=17),
        batch_size=options.batch_size,
        max_bad=10,  # pictures from the web are sometimes damaged
    )
    torch.manual_seed(17)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
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
        for batch in loader:
            # A simple target for this example: the number of words in the caption.
            words = torch.tensor([float(len(caption.split())) for caption in batch.text("caption")])
            guess = ddp(batch.torch("jpg") / 255).flatten()
            count = torch.tensor(len(batch))
            world_size = 1
            if dist.is_initialized():  # batches may differ in size between ranks: weigh samples equally
                dist.all_reduce(count)
                world_size = dist.get_world_size()
            loss = (guess - words).square().sum() / count * world_size
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
            print(proof, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
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
