"""Evaluates a classifier on each sample once: the same accuracy on any number of ranks.

    python evaluate.py eval.idx
    torchrun --nproc-per-node 7 evaluate.py eval.idx

Samples need the fields jpg and cls.
Exact: no rank drops or repeats a sample, so that batches of ranks may differ in size. Sums of whole numbers
are the same in any order; means of batches are not.
Resume: an evaluation begins anew.
"""

import argparse
import os

import torch
import torch.distributed as dist

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform, Normalize


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index")
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    options = parser.parse_args()
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")

    loader = shardwise.Loader(
        shardwise.open(options.index),
        columns=[columns.image("jpg", ImageTransform(resize=(32, 32), type="float32",
                                                     normalize=Normalize())),
                 columns.integer("cls")],
        order=shardwise.Order("sequential"),
        batch_size=options.batch_size,
    )
    torch.manual_seed(17)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10)).eval()
    sums = torch.zeros(2, dtype=torch.int64)  # number of correct samples, and of all
    with torch.inference_mode():
        for batch in loader:
            labels = batch.torch("cls")
            correct = model(batch.torch("jpg")).argmax(1) == labels
            sums += torch.tensor([int(correct.sum()), len(labels)])
    proof = loader.prove()
    if dist.is_initialized():
        dist.all_reduce(sums)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"{sums[0]} of {sums[1]} correct; {proof}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
