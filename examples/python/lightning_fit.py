"""Trains with Lightning: the loader is made in train_dataloader(), and its state is in the checkpoints.

    python lightning_fit.py train.idx --out run
    python lightning_fit.py train.idx --out run --resume

Samples need the field cls.
Exact: each sample comes once in an epoch. Lightning does not replace the sampler of a shardwise.Loader.
Resume: Trainer.fit(ckpt_path=...) restores the loader in mid-epoch, on as many ranks and with the batch size
of the first run. Lightning itself counts the batches of an epoch.
"""

import argparse
from pathlib import Path

import lightning
import torch

import shardwise
from shardwise import columns


class Model(lightning.LightningModule):
    def __init__(self, options):
        super().__init__()
        self.options = options
        self.layer = torch.nn.Linear(1, 1)

    def train_dataloader(self):
        """The process group exists when Lightning calls this."""
        self.loader = shardwise.Loader(
            shardwise.open(self.options.index),
            columns=[columns.integer("cls")],
            order=shardwise.Order(seed=17),
            batch_size=self.options.batch_size,
        )
        return self.loader

    def training_step(self, batch, number):
        values = batch.torch("cls").float()[:, None]
        count = self.trainer.strategy.reduce(torch.tensor(len(values)), reduce_op="sum")
        # Batches of ranks may differ in size. This gives each sample the same weight.
        return self.layer(values / 1000).square().sum() / count * self.trainer.world_size

    def on_train_batch_end(self, outputs, batch, number):
        if self.trainer.global_step == self.options.stop_after:
            self.trainer.save_checkpoint(self.options.out / "run.ckpt")
            self.trainer.should_stop = True

    def on_train_epoch_end(self):
        if not self.trainer.should_stop:
            self.print(self.loader.prove(), flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--devices", type=int, default=2, help="processes of this machine")
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    lightning.seed_everything(17)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=options.devices, strategy="ddp", max_epochs=options.epochs,
        default_root_dir=options.out, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    checkpoint = options.out / "run.ckpt" if options.resume else None
    trainer.fit(Model(options), ckpt_path=checkpoint, weights_only=False)


if __name__ == "__main__":
    main()
