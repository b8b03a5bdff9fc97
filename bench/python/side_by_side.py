"""shardwise compared with other readers of training data in Python: wids, webdataset, MosaicML
streaming, litdata, Grain, SPDL, and torch's DataLoader over files.

    python bench/python/side_by_side.py WORK [--images FOLDER] [--tiny FOLDER] [--pictures FOLDER]
        [--only TASK...] [--peers PEER...] [--rounds 5] [--json FILE]

WORK is a folder in which the same samples are written once in each package's format. FOLDERs have
tars: --images of large samples, --tiny of small ones, --pictures of JPEGs of one size.
--images-shards 4 takes the first four tars, and so on. A package that cannot be imported is
reported and left out. Each is used as its documentation says, with 2 worker processes or threads
(see bench/python/peers/). All samples are in memory.

Tasks: `raw` and `tiny`, an epoch of bytes; `whole` and `crop`, an epoch of decoded pictures, whole
or by a random resized crop to 224. `item` is the wall time of one random sample (`item-tiny`: of a
small one). `first` is the time to the first batch of large samples, from the program's start and
from its imports. `resume` is a new loader's time to its first batch at 90 % of an epoch, and
whether it delivers exactly the rest. `exact` shows which peers deliver each of 1,003 samples
exactly once, on 7 ranks with 2 workers each, and the batches that each rank gets.

Each peer runs in a separate process, and the peers take turns in each round. An earlier round, not
measured, adds up all delivered bytes or pixels. A peer is marked if this sum, or its number of
samples, differs from the others'. Figures are medians over the rounds, with the first and third
quartile, and the median of the ratios to shardwise round by round. Epochs also show the CPU time
per sample, over all processes; it is the better figure if others use the machine.
"""

from __future__ import annotations

import argparse
import collections
import glob
import os
import socket
import statistics
import sys
from typing import Any

import shardwise
from children import Answer, Child
from corpora import write_tar
from peers import NAMES
from peers.base import Corpus
from tables import Table, write_json

RANKS = 7
SAMPLES = 1003
TASKS = ["raw", "tiny", "whole", "crop", "item", "item-tiny", "first", "resume", "exact"]

def corpus_of(name: str, folder: str, work: str, shards: int | None = None) -> Corpus:
    tars = sorted(glob.glob(os.path.join(os.path.abspath(folder), "*.tar")))[:shards]
    data = shardwise.open(tars)
    lengths = [shard.num_samples for shard in data.shards]
    made = Corpus(name, tars, lengths, data[0].keys()[0], os.path.join(work, name))
    os.makedirs(made.folder, exist_ok=True)
    return made


def write_exact(folder: str) -> None:
    """Writes 1,003 samples that contain their numbers, in 30 shards."""
    os.makedirs(folder, exist_ok=True)
    for shard in range(30):
        numbers = range(shard * SAMPLES // 30, (shard + 1) * SAMPLES // 30)
        members = ((f"{i:06}.bin", i.to_bytes(8, "little") + bytes(92)) for i in numbers)
        write_tar(os.path.join(folder, f"exact-{shard:06}.tar"), members)


def reason(answer: Answer) -> str | None:
    """Returns why a peer did not do a task; "" if its package has no such task."""
    return f"failed: {answer['failed']}" if "failed" in answer else answer.get("absent")


def prepared(peers: list[str], corpus: Corpus, table: Table) -> list[str]:
    """Returns the peers that are importable, and writes their samples."""
    there = []
    for peer in peers:
        child = Child(peer, corpus, "prepare")
        answer = child.read()
        child.close()
        why = reason(answer)
        if why:
            table.note(peer, why)
        else:
            there.append(peer)
    return there


def started(
    peers: list[str], corpus: Corpus, table: Table, task: str, *arguments: str
) -> list[Child]:
    """Starts the peers that can do the task. Returns those that finished the unmeasured round."""
    children, sums = [], {}
    begun = [Child(peer, corpus, task, *arguments) for peer in peers]
    for child in begun:  # all at the same time, so that other load on the machine matters less
        why = reason(child.read())
        if why is None:
            child.ask()
            children.append(child)
        else:
            if why:
                table.note(child.peer, why)
            child.close()
    for child in list(children):
        answer = child.read()
        if "failed" in answer:
            table.note(child.peer, f"failed: {answer['failed']}")
            child.close()
            children.remove(child)
        else:
            sums[child.peer] = answer
    reference = next(iter(sums.values()), {})
    for peer, answer in sums.items():
        samples, total = reference.get("samples"), reference.get("sum", 0)
        # sums of different decoders differ by some thousandths
        tolerance = total / 100 if task == "pictures" else 0
        differs = abs(answer.get("sum", 0) - total) > tolerance and arguments != ("224",)
        differs |= answer.get("shapes") != reference.get("shapes")
        if answer.get("samples") != samples or differs:
            table.note(peer, f"DIFFERENT WORK: {answer}, and not {reference}")
    return children


def in_turn(children: list[Child], rounds: int) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {child.peer: [] for child in children}
    for _ in range(rounds):
        for child in children:
            answers[child.peer].append(child.round())
    for child in children:
        child.close()
    return answers


def fill(table: Table, answers: dict[str, list[Answer]], key: str) -> None:
    """Adds a row per peer. Larger values are better only for rates."""
    work: list[Any] = []  # numbers of samples and bytes
    for peer, rounds in answers.items():
        failures = [answer["failed"] for answer in rounds if "failed" in answer]
        if failures:
            table.note(peer, f"failed: {failures[0]}")
            continue
        for answer in rounds:
            table.add(peer, float(answer[key]))
        work = work or [rounds[0].get(name) for name in ("samples", "bytes")]
        if any([answer.get(name) for name in ("samples", "bytes")] != work for answer in rounds):
            table.note(peer, f"DIFFERENT WORK: {rounds}, and not {work}")
        if "cpu_us" in rounds[0]:
            cpu = statistics.median(answer["cpu_us"] for answer in rounds)
            table.note(peer, f"CPU {cpu:,.1f} us a sample")
        if "missing" in rounds[0]:
            worst = max(rounds, key=lambda a: abs(a["missing"]) + a["repeated"])
            table.note(peer, f"missing {worst['missing']}, repeated {worst['repeated']}")


def first_batches(
    peers: list[str], corpus: Corpus, rounds: int, table: Table
) -> dict[str, list[Answer]]:
    answers: dict[str, list[Answer]] = {}
    for turn in range(rounds + 1):  # round 0 may write samples, and read from disk
        for peer in list(peers):
            child = Child(peer, corpus, "first")
            answer = child.read()
            child.close()
            why = reason(answer)
            if why is not None:
                peers.remove(peer)
                if why:
                    table.note(peer, why)
            elif turn > 0:
                answer["whole"] = (answer["at"] - child.begin) * 1000
                answers.setdefault(peer, []).append(answer)
    return answers


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def delivered(peer: str, corpus: Corpus) -> list[Answer]:
    """Returns all ranks' answers: which samples they got."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    sizes = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"}
    ranks = [{"RANK": str(i), "LOCAL_RANK": str(i)} | place | sizes for i in range(RANKS)]
    children = [Child(peer, corpus, "deliver", "10", environment=rank) for rank in ranks]
    answers: list[Answer] = []
    for child in children:
        if not answers or "failed" not in answers[-1]:  # other ranks wait for it
            answers.append(child.read())
    for child in children:
        child.close()
    return answers


def exactness(peer: str, corpus: Corpus) -> str | None:
    """Returns a peer's line in the table of exact delivery."""
    ranks = delivered(peer, corpus)
    for answer in ranks:
        why = reason(answer)
        if why is not None:
            return why or None
    counts: collections.Counter[int] = collections.Counter()
    texts = []
    for epoch in range(2):
        for answer in ranks:
            for batch in answer["epochs"][epoch]:
                counts.update(batch)
        wanted = epoch + 1
        missing = sum(max(wanted - counts[i], 0) for i in range(SAMPLES))
        repeated = sum(max(counts[i] - wanted, 0) for i in range(SAMPLES))
        texts.append(f"{missing:4} missing {repeated:4} repeated")
    steps = [len(answer["epochs"][0]) for answer in ranks]
    even = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
    return f"{texts[0]}   two epochs: {texts[1]}   batches a rank: {even}"


class Run:
    """Runs the tasks, one after another."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.tables: list[Table] = []

    def table(self, task: str, corpus: Corpus, text: str, unit: str = "", digits: int = 0) -> Table:
        load = os.getloadavg()[0]
        shown = f"{corpus.num_samples} samples in {len(corpus.tars)} tars"
        made = Table(f"{task}: {text}; {shown}; load {load:.1f}", unit, digits)
        self.tables.append(made)
        return made

    def corpus(self, name: str) -> Corpus | None:
        folder = getattr(self.options, name)
        if folder is None:
            return None
        shards = getattr(self.options, f"{name}_shards")
        return corpus_of(f"{name}-{shards}", folder, self.options.work, shards)

    def rounds(self, name: str, on: str, text: str, unit: tuple[str, str, int], *how: str) -> None:
        corpus = self.corpus(on)
        if corpus is None or name not in self.options.only:
            return
        key, shown, digits = unit
        table = self.table(name, corpus, text, shown, digits)
        children = started(self.options.peers, corpus, table, *how)
        fill(table, in_turn(children, self.options.rounds), key)
        table.show()

    def first(self) -> None:
        corpus = self.corpus("images")
        if corpus is None or "first" not in self.options.only:
            return
        text = "time to the first batch, from the"
        after = self.table("first", corpus, f"{text} imports on", "ms")
        peers = list(self.options.peers)
        answers = first_batches(peers, corpus, self.options.rounds, after)
        whole = self.table("first", corpus, f"{text} start of the program", "ms")
        fill(after, answers, "ms")
        fill(whole, answers, "whole")
        after.show()
        whole.show()

    def exact(self) -> None:
        if "exact" not in self.options.only:
            return
        shards = os.path.join(self.options.work, "exact-shards")
        write_exact(shards)
        corpus = corpus_of("exact", shards, self.options.work)
        table = self.table("exact", corpus, f"{RANKS} ranks with 2 workers, batches of 10")
        for peer in prepared(self.options.peers, corpus, table):
            line = exactness(peer, corpus)
            if line is not None:
                table.note(peer, line)
        table.show()


def versions(peers: list[str], work: str) -> Table:
    corpus = Corpus("", [], [], "", work)
    table = Table("versions and settings", "")
    for child in [Child(peer, corpus, "about") for peer in peers]:
        answer = child.read()
        child.close()
        settings = answer.get("settings") or reason(answer) or ""
        table.note(child.peer, f"{answer.get('version', '')}  {settings}")
    table.show()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="shardwise beside other packages")
    parser.add_argument("work")
    for name in ("images", "tiny", "pictures"):
        parser.add_argument(f"--{name}", metavar="FOLDER")
        parser.add_argument(f"--{name}-shards", metavar="N", type=int)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--peers", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--json", help="a file for all that was measured")
    run = Run(parser.parse_args())
    options = run.options
    options.work = os.path.abspath(options.work)
    os.makedirs(options.work, exist_ok=True)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.rounds} rounds")
    run.tables.append(versions(options.peers, options.work))
    rate = ("rate", "/s", 0)
    run.rounds("raw", "images", "an epoch of bytes", rate, "epoch")
    run.rounds("tiny", "tiny", "an epoch of bytes", rate, "epoch")
    run.rounds("whole", "pictures", "an epoch of pictures", rate, "pictures", "0")
    run.rounds("crop", "pictures", "an epoch of random resized crops", rate, "pictures", "224")
    us = ("us", "us", 2)
    run.rounds("item", "images", "one random sample", us, "item", str(options.items))
    run.rounds("item-tiny", "tiny", "one random sample", us, "item", str(options.items))
    run.first()
    run.rounds("resume", "images", "at 90 % of an epoch", ("ms", "ms", 0), "resume")
    run.exact()
    write_json(options.json, run.tables)


if __name__ == "__main__":
    main()
