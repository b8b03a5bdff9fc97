"""Trains with the Trainer of transformers, on any number of ranks.

    torchrun --nproc-per-node 2 hf_trainer.py train.idx --out run
    torchrun --nproc-per-node 2 hf_trainer.py train.idx --out run --resume

Samples need the field cls.
Exact: each sample comes once in an epoch. The Trainer's own DataLoader pads the last batches with samples
that came before.
Resume: a callback saves the loader's state beside each checkpoint of the Trainer.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import shardwise
from shardwise import columns


class SaveLoader(TrainerCallback):
    def __init__(self, loader):
        self.loader = loader

    def on_save(self, args, state, control, **_):
        stands = self.loader.state_dict()  # all ranks call it
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / "loader.json").write_text(json.dumps(stands))

    def on_epoch_end(self, args, state, control, **_):
        if self.loader.has_ended:
            proof = self.loader.prove()
            if state.is_world_process_zero:
                print(proof, flush=True)


class StopAfter(TrainerCallback):
    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.steps:
            control.should_save = control.should_training_stop = True


class ExactTrainer(Trainer):
    """To resume, set `checkpoint` before train(): the loader is made with the state in it."""

    checkpoint = None

    def get_train_dataloader(self):
        loader = shardwise.Loader(
            self.train_dataset,
            columns=[columns.integer("cls")],
            order=shardwise.Order(seed=self.args.seed),
            batch_size=self.args.per_device_train_batch_size,
            arrays="torch",  # batches are mappings of the model's arguments
        )
        if self.checkpoint is not None:
            loader.load_state_dict(json.loads(Path(self.checkpoint, "loader.json").read_text()))
        self.add_callback(SaveLoader(loader))
        return loader


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, cls):
        return {"loss": self.layer(cls.float()[:, None] / 1000).square().sum()}


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
    trainer = ExactTrainer(
        model=Model(),
        args=TrainingArguments(
            output_dir=str(options.out),
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.batch_size,
            save_strategy="no",
            ignore_data_skip=True,  # the loader's state says where to continue: there is nothing to skip
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            seed=17,
        ),
        train_dataset=shardwise.open(options.index),
        callbacks=[StopAfter(options.stop_after)],
    )
    if options.resume:
        trainer.checkpoint = get_last_checkpoint(options.out)
    trainer.train(resume_from_checkpoint=trainer.checkpoint)


if __name__ == "__main__":
    main()
