"""Trains under DistributedDataParallel, leaves an epoch early with all ranks, and evaluates.

torchrun ... early_stop_run.py '{"index": ..., "out": ..., ...}'
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import shardwise
from shardwise import Loader, Order, columns, errors
from shardwise.ranks import torch_ranks
from shardwise.torch import (
    BatchSampler,
    DistributedChunkedSampler,
    average_gradients,
    evaluate,
    loss_scale,
    prove,
)

options: dict[str, Any] = json.loads(sys.argv[1])
ds = shardwise.open(options["index"])


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def losses(model: torch.nn.Module, cls: torch.Tensor) -> torch.Tensor:
    x = cls.float()[:, None] / 2001
    return (model(x)[:, 0] - x[:, 0]).square()


def with_a_loader(ranks: Any) -> dict[str, Any]:
    """A signal on one rank ends the epoch on all of them, and the proof says what is left."""
    loader = Loader(ds, columns=[columns.integer("cls")], order=Order(seed=17), batch_size=16)
    model = DistributedDataParallel(model_of(0))
    steps = 0
    with shardwise.StopGuard(ranks=ranks) as guard:
        for batch in loader:
            loss = losses(model, batch.torch("cls")).sum() * loss_scale(len(batch), ranks)
            loss.backward()
            steps += 1
            if steps == 5 and ranks.rank == ranks.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if guard.should_stop():
                break
    said = ""
    try:
        loader.prove()
    except errors.NotExact as error:
        said = str(error)
    state = loader.state_dict()
    loader.close()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("sw-")]
    return {"steps": steps, "exit": guard.exit_code, "said": said, "left": left, "state": state}


def with_a_dataloader(ranks: Any) -> dict[str, Any]:
    """A condition on one rank ends the epoch on all ranks, by ranks.any(). No worker is left."""
    sampler = DistributedChunkedSampler(ds, seed=17)
    batches = BatchSampler(sampler, 16)
    audit = shardwise.Audit(sampler.core)
    iterator = iter(DataLoader(ds, batch_sampler=batches, num_workers=1))
    model = DistributedDataParallel(model_of(0))
    steps = 0
    for batch in iterator:
        losses(model, batch["cls"]).mean().backward()
        audit.add(batch["__index__"].tolist())
        steps += 1
        if ranks.any(ranks.rank == 0 and steps == 4):
            break
    del iterator
    said = ""
    try:
        prove(sampler, audit)
    except errors.NotExact as error:
        said = str(error)
    left = len(multiprocessing.active_children())
    return {"steps": steps, "said": said, "left": left, "token": batches.token(steps)}


def gradients(ranks: Any) -> dict[str, Any]:
    """Returns the gradients of one step, averaged by DistributedDataParallel or by
    average_gradients(). The ranks have unequal numbers of samples, or none."""
    found: dict[str, Any] = {}
    for way, size in [("ddp", 7), ("plain", 7), ("ddp", 1), ("plain", 1)]:
        model = model_of(0)
        loader = Loader(ds[:size], columns=[columns.integer("cls")], global_batch_size=16)
        batch = loader.next()
        assert batch is not None
        cls = batch.torch("cls")
        if way == "ddp":
            wrapped = DistributedDataParallel(model)
            (losses(wrapped, cls).sum() * loss_scale(len(batch), ranks)).backward()
        else:
            if len(batch):
                losses(model, cls).sum().backward()
            assert average_gradients(model.parameters(), len(batch)) == size
        found[f"{way} {size}"] = [p.grad.flatten().tolist() for p in model.parameters()]
    return found


def evaluation(ranks: Any) -> dict[str, Any]:
    """Means over all samples, in a model whose last bits depend on the batch's size."""
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 64)

    def measure(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        x = torch.sin(batch["cls"][:, None] * torch.arange(64.0))
        scores = model(x)
        return {"loss": scores.square().mean(1), "right": scores.argmax(1) == batch["cls"] % 64}

    loader = Loader(
        ds,
        columns=[columns.integer("cls"), columns.bytes("bin")],
        order=Order("sequential"),
        batch_size=64,
    )
    return {
        name: [mean.sum.hex(), mean.count] for name, mean in evaluate(measure, loader).items()
    }


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    ranks = torch_ranks()
    found = {
        work.__name__: work(ranks)
        for work in (with_a_loader, with_a_dataloader, gradients, evaluation)
    }
    path = Path(options["out"], f"found-{dist.get_rank()}-{dist.get_world_size()}.json")
    path.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
