"""Trains on the handwritten digits of scikit-learn, is killed in mid-epoch, and resumes on other ranks.

    python digits.py --out run

The program packs the 1,797 pictures into shards, and trains a small network twice. The first training has no stop.
In the second one, SIGKILL ends all ranks; it continues from its last checkpoint, on another number of ranks. The
program fails unless both trainings had the same samples in each step, and prints by how much their losses differ.
When the shards are packed, the second training can also be started by hand:

    torchrun --nproc-per-node 2 digits.py --out run --train killed --kill-after 30
    torchrun --nproc-per-node 3 digits.py --out run --train killed --resume

Needs scikit-learn.
Exact: each sample comes once in an epoch, also in the one in which the ranks were killed.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks. Steps have equally
many samples on any number of ranks: each rank has --step-size divided by their number.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform, RandomResizedCrop


def pack(folder):
    from sklearn.datasets import load_digits

    digits = load_digits()
    with shardwise.ShardWriter(folder / "digits-%02d.tar", index=folder / "digits.idx", columns=["cls"],
                               max_samples=200, replace=True) as sink:
        for number, (picture, digit) in enumerate(zip(digits.images, digits.target)):
            sink.write({"__key__": f"{number:04}", "png": (picture * 15).astype("uint8"), "cls": int(digit)})


def train(options):
    torch.manual_seed(17)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    crop = ImageTransform(random_resized_crop=RandomResizedCrop(8, scale=(0.6, 1.0)), type="float32")
    loader = shardwise.Loader(
        shardwise.open(options.out / "digits.idx"),
        columns=[columns.image("png", crop), columns.integer("cls")],
        order=shardwise.Order(seed=17),
        batch_size=options.step_size // world_size,
    )
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(16 * 64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    folder = options.out / options.train
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    step = 0
    if options.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    model = torch.nn.parallel.DistributedDataParallel(model)

    if rank == 0:
        log = open(folder / "steps.jsonl", "a" if options.resume else "w", buffering=1)  # line by line
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            count = torch.tensor(len(batch))
            dist.all_reduce(count)  # batches of ranks may differ in size: each sample counts alike
            pictures = batch.torch("png")[:, :1]  # gray: all three channels are equal
            loss = torch.nn.functional.cross_entropy(model(pictures), batch.torch("cls"), reduction="sum") / count
            optimizer.zero_grad()
            (loss * world_size).backward()
            optimizer.step()
            step += 1

            parts = [None] * world_size
            dist.all_gather_object(parts, (loss.item(), batch.samples.tolist()))
            if rank == 0:
                losses, samples = zip(*parts)
                print(json.dumps({"step": step, "epoch": epoch, "ranks": world_size, "loss": sum(losses),
                                  "samples": sorted(sum(samples, []))}), file=log)
            if step == options.kill_after:
                dist.barrier()  # the log has this step
                os.kill(os.getpid(), signal.SIGKILL)
            if step % options.save_every == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                         "loader": loader.state_dict(), "step": step}  # all ranks call state_dict()
                if rank == 0:
                    torch.save(state, folder / "next.pt")
                    os.replace(folder / "next.pt", checkpoint)
        proof = loader.prove()
        if rank == 0:
            print(f"{options.train}: {proof}", flush=True)


def run(options, ranks, name, *arguments):
    """Trains on this number of ranks. Returns the exit status of torchrun, and the steps of the log."""
    code = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", __file__,
         f"--out={options.out}", f"--epochs={options.epochs}", f"--step-size={options.step_size}",
         f"--save-every={options.save_every}", f"--train={name}", *arguments],
        env={"OMP_NUM_THREADS": "1"} | os.environ,
    ).returncode
    return code, [json.loads(line) for line in open(options.out / name / "steps.jsonl")]


def compare(name, whole, steps):
    """Compares these steps with those of the training without a stop."""
    pairs = [(whole[line["step"] - 1], line) for line in steps]
    if any(one["samples"] != other["samples"] for one, other in pairs):
        sys.exit(f"{name}: the samples of a step differ from those of the training without a stop")
    most = max(abs(one["loss"] - other["loss"]) / one["loss"] for one, other in pairs)
    losses = f"losses differ by at most {most:.1e} of their value" if most else "losses are bit-equal"
    print(f"{name}: {len(steps)} steps, the same samples in each; {losses}")


def train_both(options):
    options.out.mkdir(parents=True, exist_ok=True)
    pack(options.out)
    before, after = options.ranks
    kill_after = options.kill_after or 30
    code, whole = run(options, before, "whole")
    if code != 0:
        sys.exit("the training without a stop failed: see above")
    _, killed = run(options, before, "killed", f"--kill-after={kill_after}")
    if killed[-1]["step"] != kill_after:
        sys.exit(f"the training failed before step {kill_after}: see above")
    print(f"all ranks were killed after step {kill_after}, as torchrun says above", flush=True)
    code, both = run(options, after, "killed", "--resume")
    resumed = both[len(killed):]
    if code != 0 or resumed[-1]["step"] != len(whole):
        sys.exit("the resumed training failed: see above")

    compare(f"world size {before}, killed in epoch {killed[-1]['epoch']}", whole, killed)
    compare(f"world size {after}, resumed from step {resumed[0]['step'] - 1}", whole, resumed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, nargs=2, default=[2, 3], metavar=("BEFORE", "AFTER"),
                        help="numbers of ranks before and after the kill")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--step-size", type=int, default=96, help="samples of a step, on all ranks together")
    parser.add_argument("--kill-after", type=int, help="number of the step after which SIGKILL comes (30)")
    parser.add_argument("--save-every", type=int, default=8, help="steps from a checkpoint to the next")
    parser.add_argument("--train", metavar="NAME", help="a rank of torchrun: train, and log to this folder of --out")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if not options.train:
        if any(options.step_size % ranks for ranks in options.ranks):
            parser.error("--ranks must divide --step-size")
        if (options.kill_after or 30) < options.save_every:
            parser.error("--kill-after must be at least --save-every, so that there is a checkpoint")
        return train_both(options)
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
