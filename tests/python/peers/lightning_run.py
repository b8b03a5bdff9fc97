"""Trains briefly with Lightning on 2 ranks, and records which samples each rank got.

lightning_run.py '{"index": ..., "out": ..., ...}'

This is a separate program, since Lightning starts it again for each further rank. """

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

import shardwise
from shardwise import columns, ranks
from shardwise.torch import BatchSampler, DistributedChunkedSampler

options: dict[str, Any] = json.loads(sys.argv[1])
batch_size: int = options["batch_size"]


def loader_of(ds: Any, sampler: DistributedChunkedSampler) -> Any:
    kind = options["loader"]
    if kind == "sampler":
        return DataLoader(ds, batch_size=batch_size, sampler=sampler)
    batches = BatchSampler(sampler, batch_size)
    if kind == "batch_sampler":
        return DataLoader(ds, batch_sampler=batches)
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(ds, batch_sampler=batches, num_workers=2)


class Model(lightning.LightningModule):
    def __init__(self, loader: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.loader = loader
        self.batches_done = 0
        self.seen: dict[int, list[int]] = {}

    def train_dataloader(self) -> Any:
        if options["loader"] == "threads":  # made only here, since it needs the process group
            self.loader = shardwise.Loader(
                self.loader,
                columns=[columns.integer("cls"), columns.key()],
                order=shardwise.Order(seed=17, chunk_size=50),
                batch_size=batch_size,
                ranks=ranks.torch_ranks(),
            )
        return self.loader

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        threads = options["loader"] == "threads"
        numbers = batch.samples if threads else batch["__index__"]  # type: ignore[attr-defined]
        self.seen.setdefault(self.current_epoch, []).extend(numbers.tolist())
        classes = torch.as_tensor(batch["cls"]).float()
        loss: torch.Tensor = self.layer(classes[:, None] / 2001).square().sum()
        return loss

    def on_train_epoch_end(self) -> None:
        if options["loader"] == "threads" and not self.trainer.should_stop:
            self.loader.prove()

    def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
        self.batches_done = number + 1
        if [self.current_epoch, self.batches_done] == options.get("stop_after"):
            self.trainer.save_checkpoint(Path(options["out"], "stopped.ckpt"))
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if options["loader"] in ("batch_sampler", "stateful"):
            checkpoint["samples"] = self.loader.batch_sampler.token(self.batches_done)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if options["loader"] != "batch_sampler":
            return  # StatefulDataLoader and shardwise.Loader have their own states
        self.loader.batch_sampler.resume(checkpoint["samples"])
        checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        if not progress["is_last_batch"]:  # the loader delivers only the rest: count from there
            done = progress["current"]["ready"]
            progress["current"] = {name: n - done for name, n in progress["current"].items()}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    ds: Any = shardwise.open(options["index"])
    sampler = DistributedChunkedSampler(ds, seed=17, chunk_size=50)
    model = Model(ds if options["loader"] == "threads" else loader_of(ds, sampler))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.get("ranks", 2),
        strategy="ddp",

        default_root_dir=options["out"],
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        **{"max_epochs": 2} | options.get("trainer", {}),
    )
    trainer.fit(model, ckpt_path=options.get("resume"), weights_only=False)
    trainer.save_checkpoint(Path(options["out"], "ended.ckpt"))
    out = Path(options["out"], f"seen-{trainer.global_rank}.json")
    out.write_text(json.dumps(model.seen))


if __name__ == "__main__":
    main()
