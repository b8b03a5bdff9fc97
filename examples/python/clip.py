"""Trains on images and captions as open_clip does: a contrastive loss over the batches of all ranks.

    torchrun --nproc-per-node 2 clip.py train.idx --out run
    torchrun --nproc-per-node 1 clip.py train.idx --out run --resume

Samples need the fields jpg and json, as img2dataset writes them.
Exact: each pair comes once in an epoch, on any number of ranks; open_clip's loader repeats some.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform, Normalize, RandomResizedCrop

CONTEXT = 32  # tokens of a caption


def tokenize(captions):
    """A stand-in for open_clip's tokenizer: the bytes of the captions."""
    return torch.tensor([list(caption.encode()[:CONTEXT].ljust(CONTEXT, b"\0")) for caption in captions])


class Towers(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.image = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 8, 8), torch.nn.GELU(),
                                         torch.nn.Flatten(), torch.nn.LazyLinear(width))
        self.text = torch.nn.Sequential(torch.nn.EmbeddingBag(256, width, padding_idx=0))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, images, tokens):
        return F.normalize(self.image(images), dim=1), F.normalize(self.text(tokens), dim=1)


def train(options):
    torch.manual_seed(17)

    train = ImageTransform(random_resized_crop=RandomResizedCrop(64), horizontal_flip=0.5, type="float32",
                           normalize=Normalize())
    loader = shardwise.Loader(
        shardwise.open(options.index),
        columns=[columns.image("jpg", train), columns.text("json:$.caption")],  # or text("txt")
        order=shardwise.Order(seed=17, tail="drop"),  # a contrastive loss needs equal batches on all ranks
        batch_size=options.batch_size,
    )
    model = Towers()
    model(torch.zeros(1, 3, 64, 64), torch.zeros(1, CONTEXT, dtype=torch.int64))  # sizes the lazy layer
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = options.out / "checkpoint.pt"
    if options.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    ddp = torch.nn.parallel.DistributedDataParallel(model)

    steps = 0
    for epoch in range(loader.epoch, options.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            image, text = ddp(batch.torch("jpg"), tokenize(batch.text("caption")))
            images, texts = torch.cat(all_gather(image)), torch.cat(all_gather(text))
            logits = model.scale.exp() * images @ texts.T
            own = torch.arange(len(logits))
            loss = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == options.stop_after:
                break
        state = loader.state_dict()  # all ranks call it
        if dist.get_rank() == 0:
            options.out.mkdir(exist_ok=True)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": state},
                       checkpoint)
        if steps == options.stop_after:
            break
        proof = loader.prove()
        if dist.get_rank() == 0:
            print(f"loss {loss.item():.3f}; {proof}", flush=True)


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
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
