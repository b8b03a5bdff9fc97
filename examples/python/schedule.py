"""Trains on a mixture of data sets whose weights change: by a schedule, and when a run resumes.

    python schedule.py --out run
    python schedule.py web.idx books.idx --weights 0.9 0.1 --change 100000 0.5 0.5 --out run
    torchrun --nproc-per-node 2 schedule.py web.idx books.idx --weights 0.2 0.8 --out run --resume

Samples need the field json with a caption. Without indexes, the program first makes up two data sets.
Exact: within each data set, no sample comes again before all others came, whatever the weights are.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks. The weights of the
command line apply from there on; each data set continues where it was.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist

import shardwise
from shardwise import columns


def made_up_indexes(folder):
    import made_up

    indexes = []
    for name, num_samples in (("web", 300), ("books", 40)):
        indexes.append(folder / f"{name}.idx")
        if not indexes[-1].exists():
            shardwise.index(indexes[-1], made_up.make(folder / name, num_samples))
    return indexes


def train(options):
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    options.out.mkdir(exist_ok=True)
    if not options.indexes:
        if is_first:
            made_up_indexes(options.out)
        if dist.is_initialized():
            dist.barrier()
        options.indexes = made_up_indexes(options.out)

    schedule = {int(position): weights for position, *weights in options.change}
    data = shardwise.mix([shardwise.open(index) for index in options.indexes],
                         weights=options.weights, schedule=schedule)
    loader = shardwise.Loader(
        data,
        columns=[columns.text("json:$.caption", missing="")],
        order=shardwise.Order(seed=17),
        batch_size=options.batch_size,
    )
    torch.manual_seed(17)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = options.out / "checkpoint.pt"
    if options.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"], allow_changes=True)  # the weights may be others
    ddp = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model

    steps = 0
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            captions = batch.text("caption")
            letters = torch.tensor([[float(len(caption))] for caption in captions])
            words = torch.tensor([[float(len(caption.split()))] for caption in captions])
            count = torch.tensor(len(batch))
            world_size = 1
            if dist.is_initialized():  # batches may differ in size between ranks: weigh samples equally
                dist.all_reduce(count)
                world_size = dist.get_world_size()
            loss = (ddp(letters) - words).square().sum() / count * world_size
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
            for number, had in enumerate(shardwise.progress_of(state)):
                print(f"data set {number}: {had.passes} passes and {had.remainder} of {had.num_samples} samples",
                      flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("indexes", nargs="*", type=Path)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.9, 0.1])
    parser.add_argument("--change", type=float, nargs="+", action="append", default=[],
                        metavar=("POSITION", "WEIGHT"), help="other weights from a position of the run on")
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
