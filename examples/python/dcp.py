"""Trains with torch.distributed.checkpoint, as torchtitan does: the loader is one of its Stateful objects.

    torchrun --nproc-per-node 2 dcp.py train.idx --out run
    torchrun --nproc-per-node 3 dcp.py train.idx --out run --resume

Samples need the field cls.
Exact: each sample comes once in an epoch.
Resume: dcp.load() restores the loader, for any number of ranks. torchtitan's own loader asserts that the
number of ranks has not changed.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import shardwise
from shardwise import columns


class Run:
    """Model and optimizer as one Stateful object."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])


def train(options):
    torch.manual_seed(17)

    loader = shardwise.Loader(
        shardwise.open(options.index),
        columns=[columns.integer("cls")],
        order=shardwise.Order(seed=17),
        batch_size=options.batch_size,
    )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = {"run": Run(model, optimizer), "loader": loader}
    if options.resume:
        dcp.load(state, checkpoint_id=options.out)

    steps = 0
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            values = batch.torch("cls").float()[:, None]
            count = torch.tensor(len(values))
            dist.all_reduce(count)  # batches may differ in size between ranks: weigh samples equally
            loss = model(values / 1000).square().sum() / count * dist.get_world_size()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.stop_after:
                break
        if steps == options.stop_after:
            break
        proof = loader.prove()
        if dist.get_rank() == 0:
            print(proof, flush=True)
    dcp.save(state, checkpoint_id=options.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
