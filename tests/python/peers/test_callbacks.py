"""The callbacks for Lightning and the Trainer of transformers, in one process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shards

import shardwise
from shardwise import Loader, Order, columns, errors

torch = needs("torch")


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    write_shards(tmp_path / "shards", [70])
    shardwise.index(tmp_path / "train.idx", tmp_path / "shards", threads=0)
    return Loader(
        shardwise.open(tmp_path / "train.idx"),
        columns=[columns.integer("cls")],
        order=Order(seed=17),
        batch_size=16,
        arrays="torch",
    )


def fitted(tmp_path: Path, loader: Loader, module: Any, *callbacks: Any, **options: Any) -> None:
    lightning = needs("lightning.pytorch")
    lightning.Trainer(
        default_root_dir=tmp_path,
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **options,
    ).fit(module, loader)


def module_of(step: Any) -> Any:
    lightning = needs("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))
            self.seen: list[list[float]] = []

        def training_step(self, batch: Any, number: int) -> Any:
            step(number)
            return (self.weight[0] * batch["cls"]).sum() + self.weight[1] * len(batch["cls"])

        def on_before_optimizer_step(self, optimizer: Any) -> None:  # after those of callbacks
            self.seen.append(self.weight.grad.tolist())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    return Module()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT, signal.SIGTERM])
def test_lightning_stops_with_a_checkpoint(
    tmp_path: Path, loader: Loader, number: signal.Signals
) -> None:
    needs("lightning.pytorch")
    from shardwise.torch.lightning import StopCallback

    def step(batch: int) -> None:
        if batch == 2:
            os.kill(os.getpid(), number)

    ends = [SystemExit] if number == signal.SIGTERM else []
    with shardwise.StopGuard() as guard, contextlib.suppress(*ends):
        fitted(tmp_path, loader, module_of(step), StopCallback(guard, tmp_path / "stop.ckpt"))
    assert guard.reason == number.name and loader.steps_left == 2
    saved = torch.load(tmp_path / "stop.ckpt", weights_only=False)
    assert saved["global_step"] == 3


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightning_averages_over_the_samples_of_a_step(
    tmp_path: Path, loader: Loader, accumulated: int
) -> None:
    needs("lightning.pytorch")
    from shardwise.torch.lightning import MeanOverSamples

    module = module_of(lambda number: None)
    fitted(tmp_path, loader, module, MeanOverSamples(), accumulate_grad_batches=accumulated)
    loader.set_epoch(1)
    loader.set_epoch(0)
    batches = [batch["cls"] for batch in loader]
    steps = [
        torch.cat(batches[i : i + accumulated]).double().mean()
        for i in range(0, len(batches), accumulated)
    ]
    gradients = torch.tensor(module.seen)
    assert len(batches[-1]) == 70 % 16
    torch.testing.assert_close(gradients[:, 0].double(), torch.stack(steps))
    torch.testing.assert_close(gradients[:, 1], torch.ones(len(steps)))


@pytest.mark.parametrize("kind", ["tensor", "pair", "list", "dict", "dict in a pair", "samples"])
def test_the_rows_of_any_batch_are_counted(kind: str) -> None:
    needs("lightning.pytorch")
    from shardwise.torch.lightning import _num_rows

    rows = torch.zeros(7, 3)
    batches = {
        "tensor": rows,
        "pair": (rows, rows),
        "list": [["a"] * 7, rows],
        "dict": {"txt": ["a"] * 7, "cls": rows},
        "dict in a pair": ({"cls": rows}, rows),
        "samples": [{"cls": 1}] * 7,
    }
    assert _num_rows(batches[kind]) == 7
    for unknown in (3, "text", ["text"] * 7, None):
        with pytest.raises(errors.InvalidArgument, match="num_rows"):
            _num_rows(unknown)


def test_the_trainer_of_transformers_stops_with_a_checkpoint(
    tmp_path: Path, loader: Loader
) -> None:
    transformers = needs("transformers")
    from shardwise.torch.transformers import StopCallback

    guard = shardwise.StopGuard()

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, cls: Any) -> Any:
            if loader.steps_left == 3:
                guard.request()
            return {"loss": self.layer(cls.float()[:, None]).square().mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return loader

    trainer = Trainer(
        model=Model(),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        callbacks=[StopCallback(guard)],
    )
    with guard:
        trainer.train()
    assert trainer.state.global_step == 2 and guard.reason == "a request"
    assert (tmp_path / "out/checkpoint-2").is_dir()
