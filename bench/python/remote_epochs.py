"""Epochs of shards on a server: shardwise.Loader beside webdataset, MosaicML streaming and litdata.

    python bench/python/remote_epochs.py WORK [--pictures 5000] [--shards 8] [--latency MS]
        [--rate MB] [--peers PEER...] [--rounds 5] [--json FILE]

WORK is a folder in which ImageNet-like shards are written once: noisy JPEGs of 500x375 and about
100 KB, with a number (cls). Each package's own format has the same samples. A server on this
machine sends them and answers like S3. It waits --latency before each answer, and sends at most
--rate megabytes per second, over all connections; 0 means no limit.

Each package is used as its documentation says, with 2 worker processes or threads and its cache on
this disk (see bench/python/peers/): shardwise reads an index and tars by http, webdataset tars by
http, streaming and litdata their formats by s3. An epoch delivers random resized crops to 224, in
batches of 64, with their numbers. Epoch 1 begins with an empty cache and includes the start of the
loader; epoch 2 uses the same loader.

In each round every package runs in a new process. The rows take turns. Figures are medians over the
rounds, with the first and third quartile, and the median of the ratios to shardwise round by round.
A row is marked if it did not deliver every sample exactly once. The server uses the same cores: its
CPU time is not in the column CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys

import shardwise
from children import Answer, Child
from corpora import picture_shards
from peers.base import BATCH, SIDE, Corpus, Source
from server import BUCKET, counts, served
from tables import Table, write_json

PEERS = ["shardwise", "webdataset", "streaming", "litdata"]
EPOCHS = 2
LIMIT_S = 600
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}


def made_corpus(work: str, pictures: int, shards: int) -> Corpus:
    folder = os.path.join(work, f"remote-{pictures}-{shards}")
    tars = picture_shards(os.path.join(folder, "shards"), pictures, shards, large=True, classes=0)
    lengths = [shard.num_samples for shard in shardwise.open(tars).shards]
    return Corpus("remote", tars, lengths, "jpg", folder, "cls")


def prepared(peers: list[str], corpus: Corpus, about: Table) -> list[str]:
    """Writes the samples in each package's format. Returns the peers that are importable."""
    there = []
    for peer in peers:
        child = Child(peer, corpus, "prepare", limit_s=LIMIT_S)
        answer = child.read()
        child.close()
        why = answer.get("absent") or answer.get("failed")
        about.note(peer, why or f"{answer['version']}  {answer['settings']}")
        if not why:
            there.append(peer)
    return there


def run_once(peer: str, corpus: Corpus, url: str, cache: str) -> tuple[float, list[Answer]]:
    """Runs the epochs of a peer in a new process. Returns the time of its start, and an answer for
    each epoch, with the requests and bytes that the server answered. After a failure, the last
    answer says so."""
    shutil.rmtree(cache, ignore_errors=True)
    os.makedirs(cache)
    source = json.dumps(Source(url, BUCKET, cache)._asdict())
    child = Child(peer, corpus, "remote", source, limit_s=LIMIT_S, environment=KEYS)
    answers = [child.read()]
    counts(url)
    while "failed" not in answers[-1] and len(answers) <= EPOCHS:
        answer = child.round()
        if "failed" not in answer:
            answer["requests"], answer["sent"] = counts(url)
        answers.append(answer)
    child.close()
    return child.begin, answers[1:] or answers


class Tables:
    """The table of each epoch, and the times to the first batch."""

    def __init__(self, corpus: Corpus, server: str) -> None:
        size = sum(map(os.path.getsize, corpus.tars)) / 1e6
        about = f"{corpus.num_samples} pictures, {size:.0f} MB in {len(corpus.tars)} tars"
        self.epochs = [
            Table(f"epoch {i + 1}: {SIDE} x {SIDE}, batches of {BATCH}; {about}; {server}", "/s")
            for i in range(EPOCHS)
        ]
        self.first = Table("first batch of epoch 1, from the imports on", "ms")
        self.whole = Table("first batch of epoch 1, from the start of the program", "ms")
        self._answers: dict[str, list[list[Answer]]] = {}

    def add(self, peer: str, begin: float, answers: list[Answer]) -> bool:
        """Returns False if the peer failed."""
        if "failed" in answers[-1]:
            self.epochs[max(len(answers) - 1, 0)].note(peer, f"failed: {answers[-1]['failed']}")
            return False
        for table, answer in zip(self.epochs, answers, strict=True):
            table.add(peer, answer["rate"])
        self.first.add(peer, answers[0]["ms"])
        self.whole.add(peer, (answers[0]["at"] - begin) * 1000)
        self._answers.setdefault(peer, []).append(answers)
        return True

    def finish(self) -> list[Table]:
        """Adds the notes: what each epoch cost and delivered."""
        for peer, rounds in self._answers.items():
            for table, answers in zip(self.epochs, zip(*rounds), strict=True):
                cpu = statistics.median(answer["cpu_us"] for answer in answers)
                sent = statistics.median(answer["sent"] for answer in answers)
                requests = statistics.median(answer["requests"] for answer in answers)
                table.note(peer, f"CPU {cpu:,.0f} us a sample")
                table.note(peer, f"{sent / 1e6:,.0f} MB in {requests:,.0f} requests")
                worst = max(answers, key=lambda answer: answer["missing"] + answer["repeated"])
                missing, repeated = worst["missing"], worst["repeated"]
                exact = "each sample once"
                if missing or repeated:
                    exact = f"NOT EXACT: {missing} missing, {repeated} repeated"
                table.note(peer, exact)
        return [*self.epochs, self.first, self.whole]


def main() -> None:
    parser = argparse.ArgumentParser(description="epochs of shards on a server")
    parser.add_argument("work")
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0, help="in ms")
    parser.add_argument("--rate", type=float, default=0, help="in MB per second")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    work = os.path.abspath(options.work)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.rounds} rounds")
    corpus = made_corpus(work, options.pictures, options.shards)
    about = Table("versions and settings", "")
    peers = prepared(options.peers, corpus, about)
    about.show()
    rate = f"{options.rate:g} MB/s" if options.rate else "no limit of rate"
    tables = Tables(corpus, f"latency {options.latency:g} ms, {rate}")
    with served(corpus.folder, options.latency, options.rate * 1e6) as url:
        for _ in range(options.rounds):
            for peer in list(peers):
                begin, answers = run_once(peer, corpus, url, os.path.join(work, "cache"))
                if not tables.add(peer, begin, answers):
                    peers.remove(peer)
    shutil.rmtree(os.path.join(work, "cache"), ignore_errors=True)
    measured = tables.finish()
    for table in measured:
        table.show()
    write_json(options.json, [about, *measured])


if __name__ == "__main__":
    main()
