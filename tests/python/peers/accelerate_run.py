"""Trains briefly with Accelerate, and records which samples each rank got.

torchrun ... accelerate_run.py '{"index": ..., "out": ..., ...}' """

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import shardwise
from shardwise.torch import BatchSampler, DistributedChunkedSampler, prove

options: dict[str, Any] = json.loads(sys.argv[1])
out = Path(options["out"])


def main() -> None:
    accelerator = Accelerator(cpu=True)
    ds: Any = shardwise.open(options["index"])
    sampler = DistributedChunkedSampler(ds, seed=17, chunk_size=50)
    batches = BatchSampler(sampler, options["batch_size"])
    if options["loader"] == "batch_sampler":
        loader: Any = DataLoader(ds, batch_sampler=batches)
    elif options["loader"] == "sampler":
        loader = DataLoader(ds, batch_size=options["batch_size"], sampler=sampler)
    else:
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader = StatefulDataLoader(ds, batch_sampler=batches, num_workers=2)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if options.get("prepare_loader"):
        loader = accelerator.prepare(loader)
    rank = accelerator.process_index
    if "token" in options:
        sampler.resume(options["token"])
    if "states" in options:
        loader.load_state_dict(torch.load(Path(options["states"], f"state-{rank}.pt")))

    seen: dict[int, list[int]] = {}
    proofs = []
    for epoch in range(options.get("first_epoch", 0), 2):
        sampler.set_epoch(epoch)
        seen[epoch] = []
        audit = shardwise.Audit(sampler.core)
        for done, batch in enumerate(loader, start=1):
            seen[epoch] += batch["__index__"].tolist()
            audit.add(batch["__index__"].tolist())
            values = batch["cls"].to(accelerator.device).float()[:, None]
            accelerator.backward(model(values / 2001).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if [epoch, done] == options.get("stop_after"):
                break
        if [epoch, done] == options.get("stop_after"):
            (out / f"token-{rank}.txt").write_text(batches.token(done))
            if hasattr(loader, "state_dict"):
                torch.save(loader.state_dict(), out / f"state-{rank}.pt")
        elif epoch != options.get("first_epoch"):  # an earlier run began that epoch
            proofs.append(prove(sampler, audit))
    (out / f"seen-{rank}.json").write_text(json.dumps(seen))
    (out / f"proofs-{rank}.json").write_text(json.dumps(proofs))
    accelerator.end_training()


if __name__ == "__main__":
    main()
