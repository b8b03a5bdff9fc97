"""Trains a small GPT on a weighted mixture of tokenised corpora, in blocks of equal length.

    torchrun --nproc-per-node 2 tokens.py web.idx books.idx code.idx --weights 0.6 0.3 0.1 --out run
    torchrun --nproc-per-node 1 tokens.py web.idx books.idx code.idx --weights 0.6 0.3 0.1 --out run --resume

Samples need the field tokens: raw little-endian int32, at least 2 tokens.
Exact: sequences are packed whole into rows of --block tokens. At every point of the run, each
corpus has its share of the mixture. Each document of a corpus comes once before any comes again.
Resume: the checkpoint holds the loader's state, which is valid for another number of ranks.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

import shardwise
from shardwise import columns

VOCABULARY = 256


class Model(torch.nn.Module):
    def __init__(self, block, width=64):
        super().__init__()
        self.token = torch.nn.Embedding(VOCABULARY, width)
        self.place = torch.nn.Embedding(block, width)
        self.layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.head = torch.nn.Linear(width, VOCABULARY)

    def forward(self, tokens, places, segments):
        """Attends within a document, to earlier tokens."""
        same = segments[:, :, None] == segments[:, None, :]
        hidden = ~(same & (places[:, :, None] >= places[:, None, :]))
        x = self.token(tokens) + self.place(places)
        return self.head(self.layer(x, hidden.repeat_interleave(2, 0)))


def train(options):
    torch.manual_seed(17)

    data = shardwise.mix([shardwise.open(index) for index in options.indexes], weights=options.weights)
    loader = shardwise.Loader(
        data,
        columns=[columns.tokens("tokens")],
        order=shardwise.Order(seed=17),
        batch_size=options.batch_size,
        by_length=shardwise.ByLength(field="tokens", unit=4, pack="tokens", pack_to=options.block),
    )
    model = Model(options.block)
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
            tokens = batch.torch("tokens").long()
            places, segments = batch.torch("tokens_positions").long(), batch.torch("tokens_segments")
            logits = ddp(tokens, places, segments)
            # A token predicts the next one of its document. Segment 0 is padding.
            is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
            losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
            count = is_next.sum()
            dist.all_reduce(count)  # of all ranks: DDP averages over ranks, so that each token counts equally
            loss = (losses * is_next.flatten()).sum() / count.clamp(min=1) * dist.get_world_size()
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
    parser.add_argument("indexes", nargs="+")
    parser.add_argument("--weights", type=float, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=4, help="rows of each rank")
    parser.add_argument("--stop-after", type=int,
                        help="number of steps of this run, after which it saves a checkpoint and ends")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
