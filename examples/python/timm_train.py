"""Trains and validates with timm's datasets and transforms, each sample once.

    torchrun --nproc-per-node 2 timm_train.py train.idx eval.idx --out run
    torchrun --nproc-per-node 2 timm_train.py train.idx eval.idx --out run --resume

Samples need the fields jpg and cls.
Exact: timm's loaders repeat samples in validation; these samplers do not, on any number of ranks.
Resume: the checkpoint holds the sampler's token, which is valid for another number of ranks.
"""

import argparse
import io
from pathlib import Path

import timm
import torch
import torch.distributed as dist
from timm.data import ImageDataset, create_transform
from timm.data.readers.reader import Reader
from torch.utils.data import DataLoader

import shardwise
from shardwise.torch import BatchSampler, DistributedChunkedSampler, SequentialSampler, prove


class ShardwiseReader(Reader):
    """A reader for timm: item i is the sample i of an index."""

    def __init__(self, index):
        super().__init__()
        self.data = shardwise.open(index)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, number):
        sample = self.data[number]
        return io.BytesIO(sample["jpg"]), sample.integer("cls"), number

    def _filename(self, index, basename=False, absolute=False):
        return self.data[index].key


def dataset(index, is_training):
    return ImageDataset(
        root="", reader=ShardwiseReader(index), additional_features=["number"],
        transform=create_transform(64, is_training=is_training),
    )


def train(options):
    torch.manual_seed(17)

    train, test = dataset(options.train, True), dataset(options.eval, False)
    sampler = DistributedChunkedSampler(train.reader.data, seed=17)
    batches = BatchSampler(sampler, options.batch_size)
    loader = DataLoader(train, batch_sampler=batches, num_workers=2)
    test_sampler = SequentialSampler(test.reader.data)
    test_loader = DataLoader(test, batch_sampler=BatchSampler(test_sampler, options.batch_size))

    model = timm.create_model("resnet10t", num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint, resumed_epoch = options.out / "checkpoint.pt", -1
    if options.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.resume(saved["token"])
        resumed_epoch = sampler.epoch
    ddp = torch.nn.parallel.DistributedDataParallel(model)

    steps = 0
    for epoch in range(sampler.epoch, options.epochs):
        sampler.set_epoch(epoch)  # keeps the position within the token's epoch
        done = 0
        audit = shardwise.Audit(sampler.core)
        for images, labels, numbers in loader:
            audit.add(numbers.tolist())
            count = torch.tensor(len(labels))
            dist.all_reduce(count)  # batches may differ in size between ranks: weigh samples equally
            losses = torch.nn.functional.cross_entropy(ddp(images), labels, reduction="sum")
            loss = losses / count * dist.get_world_size()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done, steps = done + 1, steps + 1
            if steps == options.stop_after:
                break
        token = batches.token(done)
        if dist.get_rank() == 0:
            options.out.mkdir(exist_ok=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "token": token},
                       checkpoint)
        if steps == options.stop_after:
            break
        # The audit of a resumed epoch lacks the samples that came before.
        is_whole = epoch > resumed_epoch
        proof = prove(sampler, audit) if is_whole else f"epoch {epoch}: resumed"
        accuracy = validate(ddp.module, test_loader)
        if dist.get_rank() == 0:
            print(f"{accuracy}; {proof}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("eval")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


def validate(model, loader):
    """Exact over all ranks, because it sums counts of samples and not means of batches."""
    sums = torch.zeros(2, dtype=torch.int64)  # number of correct samples, and of all
    model.eval()
    with torch.inference_mode():
        for images, labels, _ in loader:
            sums += torch.tensor([int((model(images).argmax(1) == labels).sum()), len(labels)])
    model.train()
    dist.all_reduce(sums)
    return f"{sums[0]} of {sums[1]} correct"


if __name__ == "__main__":
    main()
