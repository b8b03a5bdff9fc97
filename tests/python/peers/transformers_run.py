"""Trains a little with the Trainer of transformers, and notes which samples every rank was given.

torchrun ... transformers_run.py '{"index": ..., "out": ..., ...}'
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import shardwise
from shardwise import columns
from shardwise.torch import DistributedChunkedSampler

options: dict[str, Any] = json.loads(sys.argv[1])
out = Path(options["out"])
seen: dict[int, list[int]] = {}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, numbers: torch.Tensor, cls: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(cls.float()[:, None] / 2001).square().sum()}


class OwnTrainer(Trainer):
    def get_train_dataloader(self) -> Any:
        if options["loader"] == "sampler":
            return super().get_train_dataloader()
        loader = shardwise.Loader(
            self.train_dataset,
            columns=[
                columns.integer("cls"),
                columns.function("numbers", "int64", (), lambda sample, random: sample.number),
            ],
            order=shardwise.Order(seed=17, chunk_size=50),
            batch_size=self.args.per_device_train_batch_size,
            arrays="torch",
        )
        if "resume" in options:
            loader.load_state_dict(json.loads(Path(options["resume"], "loader.json").read_text()))
        self.add_callback(SaveLoader(loader))
        return loader

    def _get_train_sampler(self, *_: Any) -> Any:
        return DistributedChunkedSampler(self.train_dataset, seed=17, chunk_size=50)

    def training_step(self, model: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        numbers = inputs["numbers"].tolist()
        seen.setdefault(int(self.state.epoch or 0), []).extend(numbers)
        return super().training_step(model, inputs, *rest)


class SaveLoader(TrainerCallback):
    """Every rank asks for the state, which is the same on all."""

    def __init__(self, loader: shardwise.Loader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        stands = self.loader.state_dict()
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / "loader.json").write_text(json.dumps(stands))


class Stop(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == options.get("stop_after"):
            control.should_save = control.should_training_stop = True


def collate(samples: list[shardwise.Sample]) -> dict[str, Any]:
    numbers = torch.tensor([sample.number for sample in samples])
    return {"numbers": numbers, "cls": torch.tensor([s.integer("cls") for s in samples])}


def main() -> None:
    arguments = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=2,
        per_device_train_batch_size=options["batch_size"],
        save_strategy="no",
        # The state of a Loader says where it stands: there is nothing to skip.
        ignore_data_skip=options["loader"] == "threads",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
    )
    trainer = OwnTrainer(
        model=Model(),
        args=arguments,
        train_dataset=shardwise.open(options["index"]),
        data_collator=collate,
        callbacks=[Stop()],
    )
    trainer.train(resume_from_checkpoint=options.get("resume"))
    (out / f"seen-{arguments.process_index}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
