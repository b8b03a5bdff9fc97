"""Trains with Accelerate: the loader is registered for its checkpoints, and not passed to prepare().

    accelerate launch --num-processes 2 accelerate_loop.py train.idx --out run
    accelerate launch --num-processes 3 accelerate_loop.py train.idx --out run --resume

Samples need the field cls.
Exact: each sample comes once in an epoch. A shardwise.Loader already gives each rank its own batches. Given a
DataLoader, prepare() would distribute its batches over the ranks, and drop or repeat samples.
Resume: load_state() restores the loader, for any number of processes. There are no batches to skip.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator

import shardwise
from shardwise import columns


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    accelerator = Accelerator()
    torch.manual_seed(17)

    loader = shardwise.Loader(
        shardwise.open(options.index),
        columns=[columns.integer("cls")],
        order=shardwise.Order(seed=17),
        batch_size=options.batch_size,
    )
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    accelerator.register_for_checkpointing(loader)
    if options.resume:
        accelerator.load_state(options.out)

    steps = 0
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            values = batch.torch("cls").to(accelerator.device).float()[:, None]
            count = accelerator.reduce(torch.tensor(len(values), device=accelerator.device))
            # Batches of processes may differ in size. This gives each sample the same weight.
            loss = model(values / 1000).square().sum() / count * accelerator.num_processes
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == options.stop_after:
                break
        if steps == options.stop_after:
            break
        accelerator.print(loader.prove(), flush=True)
    accelerator.save_state(options.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
