"""Trains briefly, with checkpoints by torch.distributed.checkpoint.

torchrun ... dcp_run.py '{"index": ..., "out": ..., ...}' """

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import shardwise
from shardwise import columns

options: dict[str, Any] = json.loads(sys.argv[1])
out = Path(options["out"])


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(1, 1)
    loader = shardwise.Loader(
        shardwise.open(options["index"]),
        columns=[columns.integer("cls")],
        order=shardwise.Order(seed=17, chunk_size=50),
        batch_size=options["batch_size"],
    )
    state = {"model": model.state_dict(), "loader": loader}  # DCP calls its state_dict()
    if "resume" in options:
        dcp.load(state, checkpoint_id=options["resume"])
    seen: dict[int, list[int]] = {}
    for epoch in range(loader.epoch, 2):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.setdefault(epoch, []).extend(batch.samples.tolist())
            if [epoch, len(loader) - loader.steps_left] == options.get("stop_after"):
                dcp.save(state, checkpoint_id=out / "checkpoint")
                break
        else:
            loader.prove()
            continue
        break
    (out / f"seen-{dist.get_rank()}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
