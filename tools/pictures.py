#!/usr/bin/env python3
"""Draws the pictures of the pages, docs/pictures/*.svg, from results of `shardwise` and the tables of docs/bench-report.md.

    tools/pictures.py PROGRAM [--check] [--run FOLDER]

PROGRAM is the built `shardwise`. It computes the orders, the plans, the index and the proof. Every number of a peer is read
from a table of docs/bench-report.md. Equal sources thus give equal bytes. --check writes nothing, and exits with 1 if a
picture is out of date.

FOLDER is the --out of examples/python/digits.py. resume.svg is drawn from this training, and only if --run is given:
its last digits may differ on other machines.

A picture is a card with a background, so that it can be read on light and dark pages. Its colours follow the reader's
setting. It is 460 units wide, so that a phone shows its text at 10 points."""

import argparse
import io
import json
import math
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
DOCS = os.path.join(os.path.dirname(HERE), "docs")
WIDTH = 460

STYLE = """
.card{fill:#ffffff;stroke:#d0d7de}.t{fill:#1f2328}.s{fill:#59636e}.box{fill:#f6f8fa;stroke:#afb8c1}
.grid{stroke:#d8dee4}.ours{fill:#0969da}.ourline{stroke:#0969da}.peer{fill:#8c959f}.peerline{stroke:#bc4c00}
.peertext{fill:#bc4c00}.good{fill:#1a7f37}.bad{fill:#cf222e}.warn{fill:#9a6700}.dots{stroke:#0969da}
.line{fill:none;stroke-width:2}.arrow{stroke:#59636e;fill:none;stroke-width:1.5}.tip{fill:#59636e}
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}.m{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}
.n{font-size:12px}.h{font-size:15px;font-weight:600}.b{font-weight:600}.e{text-anchor:end}.c{text-anchor:middle}
@media (prefers-color-scheme:dark){.card{fill:#161b22;stroke:#30363d}.t{fill:#e6edf3}.s{fill:#9198a1}
.box{fill:#21262d;stroke:#484f58}.grid{stroke:#30363d}.ours{fill:#4493f8}.ourline{stroke:#4493f8}.peer{fill:#6e7681}
.peerline{stroke:#f0883e}.peertext{fill:#f0883e}.good{fill:#3fb950}.bad{fill:#f85149}.warn{fill:#d29922}
.dots{stroke:#4493f8}.arrow{stroke:#9198a1}.tip{fill:#9198a1}}
"""


class Picture:
    """An SVG under construction, written from top to bottom."""

    def __init__(self, title: str, said: str) -> None:
        self.title = title
        self.said = said
        self.parts: list[str] = []
        self.text(16, 28, title, "t h")

    def add(self, part: str) -> None:
        self.parts.append(part)

    def text(self, x: float, y: float, text: str, kind: str = "t") -> None:
        self.add(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>')

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, radius: float = 0
    ) -> None:
        self.add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="{radius:g}" class="{kind}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>')

    def arrow_down(self, x: float, y: float, to: float, text: str = "") -> None:
        self.line(x, y, x, to - 6, "arrow")
        self.add(f'<path d="M{x - 4:g} {to - 7:g}h8l-4 7z" class="tip"/>')
        if text:
            self.text(x + 12, (y + to) / 2 + 4, text, "s")

    def drawn(self, height: float) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH * 1.25:g}"'
            f' role="img" aria-labelledby="title said">\n<title id="title">{escape(self.title)}</title>\n'
            f'<desc id="said">{escape(self.said)}</desc>\n<style>{STYLE}</style>\n'
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" class="card"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


class Program:
    """The built `shardwise`. Runs in a new folder with 400 samples in four shards."""

    def __init__(self, path: str, folder: str) -> None:
        self.path = os.path.abspath(path)
        self.folder = folder
        for shard in range(4):
            with tarfile.open(
                os.path.join(folder, f"train-{shard:06}.tar"), "w", format=tarfile.USTAR_FORMAT
            ) as tar:
                for i in range(100 * shard, 100 * shard + 100):
                    for field, content in (
                        ("jpg", bytes(15000 + i * 7919 % 4000)),
                        ("cls", b"%d" % (i % 10)),
                    ):
                        member = tarfile.TarInfo(f"{i:06}.{field}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
        self.run("index", "--quiet", "-o", "train.idx", "train-{000000..000003}.tar")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.path, *arguments], cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout


# The rows of bench/python/side_by_side.py: the package's name, and how it was used.
PACKAGES = {
    "shardwise": ("shardwise.Loader", "threads"),
    "shardwise-torch": ("shardwise.torch", "DataLoader"),
    "shardwise-wids": ("shardwise.wids", "DataLoader"),
    "wids": ("wids", ""),
    "webdataset": ("webdataset", ""),
    "webdataset-resampled": ("webdataset", "resampled=True and with_epoch()"),
    "streaming": ("mosaicml-streaming", ""),
    "litdata": ("litdata", ""),
    "grain": ("Grain", "threads"),
    "grain-processes": ("Grain", "processes"),
    "spdl": ("SPDL", "threads"),
    "torch": ("torch", "one file each"),
}
# How they were used on several ranks, if it matters there.
ON_RANKS = PACKAGES | {
    "webdataset": ("webdataset", "split_by_node"),
    "litdata": ("litdata", "drop_last=False"),
    "spdl": ("SPDL", "ddp_drop_last_distributed_round=False"),
    "torch": ("torch", "DistributedSampler"),
}


def rows_of(title: str) -> list[list[str]]:
    """Returns rows, as lists of cells, from docs/bench-report.md: those of the table in section
    side-by-side whose title begins with `title`."""
    with open(os.path.join(DOCS, "bench-report.md"), encoding="utf-8") as file:
        text = file.read()
    section = text[text.index("\n## side-by-side: ") :]
    table = section[section.index(f"\n**{title}") :].split("\n\n")[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def tar_to_tensor(program: Program) -> str:
    members = [line.split("\t") for line in program.run("ls", "train.idx").splitlines()]
    mine = [row for row in members if row[1] == "42"]
    shards = sorted({row[0] for row in members})
    shard = shards.index(mine[0][0])
    order = ["--seed", "17", "--world", "4"]
    step = [
        line.split("\t")
        for line in program.run(
            "explain", "train.idx", *order, "--batch", "3", "--step", "0"
        ).splitlines()
    ]
    proof = program.run("epoch", "train.idx", "--quiet", *order).splitlines()[-1]
    picture = Picture(
        "From tar to tensor",
        "A shard is scanned once into an index; an order deals samples to ranks; a loader makes batches; the epoch ends with a proof.",
    )
    y = 44
    boxes = [
        (
            f"tar shard {shard}, as it is",
            [f"{row[2]}.{row[3]:<4} {int(row[5]):>7,} bytes at {int(row[4]):>9,}" for row in mine],
            "scanned once: headers only",
        ),
        (
            "index",
            [
                f"sample {mine[0][1]}: shard {shard}, " + ", ".join(row[3] for row in mine),
                "about 20 bytes a field, mapped by all processes",
            ],
            "a formula, no list in memory",
        ),
        (
            "order: seed 17, epoch 0, 4 ranks",
            [
                f"rank {rank}: " + ", ".join(row[1] for row in step if row[0] == str(rank)) + " ..."
                for rank in range(4)
            ],
            "each rank reads its own samples",
        ),
        (
            "batch of a rank",
            [
                "images uint8 [3, 3, 224, 224], labels int64 [3]",
                "decoded by threads into the batch's memory",
            ],
            "one all-reduce",
        ),
    ]
    for title, lines, below in boxes:
        height = 30 + 17 * len(lines)
        picture.rect(16, y, WIDTH - 32, height, "box", 6)
        picture.text(28, y + 20, title, "t b")
        for i, line in enumerate(lines):
            picture.add(
                f'<text x="28" y="{y + 38 + 17 * i}" class="t m" xml:space="preserve">{escape(line)}</text>'
            )
        picture.arrow_down(40, y + height, y + height + 32, below)
        y += height + 32
    picture.rect(16, y, WIDTH - 32, 34, "box", 6)
    picture.text(28, y + 22, proof, "good b")
    return picture.drawn(y + 50)


def shuffle(program: Program) -> str:
    size, chunk, side = 4096, 32, 190
    shown = [
        ("window 1", chunk, 1),
        ("window 8", chunk, 8),
        ("window 64", chunk, 64),
        ("full shuffle: chunk 1", 1, size),
    ]
    picture = Picture(
        "How well is it shuffled?",
        "Position in the epoch against position in the index, for windows of 1, 8 and 64 chunks, and for a full shuffle.",
    )
    picture.text(16, 48, f"{size:,} samples in chunks of {chunk}; every third is drawn", "s")
    for i, (name, samples, window) in enumerate(shown):
        x, y = 36 + i % 2 * 216, 84 + i // 2 * 262
        order = program.run(
            "order",
            "--size",
            str(size),
            "--seed",
            "17",
            "--chunk",
            str(samples),
            "--window",
            str(window),
        )
        numbers = [int(line) for line in order.split()]
        batches = [len({n // chunk for n in numbers[at : at + 64]}) for at in range(0, size, 64)]
        picture.text(x, y - 8, name, "t b")
        picture.rect(x, y, side, side, "box")
        dots = "".join(
            f"M{x + p * side / size:.1f} {y + side - n * side / size:.1f}h1"
            for p, n in enumerate(numbers)
            if p % 3 == 0
        )
        picture.add(f'<path d="{dots}" class="dots" stroke-width="1.3"/>')
        picture.add(
            f'<text transform="translate({x - 7} {y + side / 2:g}) rotate(-90)" class="s c">index position</text>'
        )
        picture.text(x + side / 2, y + side + 16, "epoch position", "s c")
        picture.text(
            x, y + side + 34, f"batch of 64: from {sum(batches) / len(batches):.0f} chunks", "t"
        )
    return picture.drawn(84 + 262 + side + 52)


def cache(program: Program) -> str:
    shards = 200
    sizes = [2, 4, *range(5, 100, 5), 99, 100]
    points = []
    for percent in sizes:
        plan = json.loads(
            program.run(
                "plan", "--quiet", "--json", "--shards", str(shards), "--samples-per-shard", "1000", "--shard-bytes", "256M", "--world", "8",
                "--nodes", "1", "--sampler", "sharded", "--cache-bytes", f"{percent}%", "--epochs", "3",
            )
        )  # fmt: skip
        later = plan["epochs"][1:]
        points.append(
            [
                sum(e[rule]["fetched_bytes"] for e in later) / sum(e["bytes"] for e in later)
                for rule in ("lru", "next_use")
            ]
        )
    picture = Picture(
        "What a cache fetches again",
        "Bytes that an epoch after the first fetches, by the size of the cache. LRU evicts the "
        "least recently used shard, next use the shard that is needed last.",
    )
    picture.text(
        16, 48, f"one node, {shards} shards of 256 MiB, --sampler sharded; epochs 1 and 2 of 3", "s"
    )
    left, top, width, height = 72, 68, 352, 250
    for i in range(5):
        y = top + height - i * height / 4
        picture.line(left, y, left + width, y, "grid")
        picture.text(left - 8, y + 4, f"{25 * i} %", "s e")
        picture.text(left + i * width / 4, top + height + 18, f"{25 * i} %", "s c")
    picture.text(left + width / 2, top + height + 38, "size of the cache, in % of all bytes", "s c")
    picture.add(
        f'<text transform="translate(22 {top + height / 2:g}) rotate(-90)" class="s c">fetched, in % of all bytes</text>'
    )
    for which, kind in ((0, "peerline"), (1, "ourline")):
        path = " ".join(
            f"{left + s * width / 100:.1f},{top + height * (1 - p[which]):.1f}"
            for s, p in zip(sizes, points)
        )
        picture.add(f'<polyline points="{path}" class="line {kind}"/>')
    half = points[sizes.index(50)]
    picture.text(left + width, top + 28, f"LRU: {100 * half[0]:.0f} % with a cache of 50 %", "peertext b e")
    picture.text(
        left + 14,
        top + height * 0.86,
        f"next use (Shardwise): {100 * half[1]:.0f} % with a cache of 50 %",
        "ours b",
    )
    return picture.drawn(top + height + 54)


def exact() -> str:
    picture = Picture(
        "Who delivers each sample exactly once?",
        "Samples missing and repeated in one epoch of 1,003 samples on 7 ranks, by package.",
    )
    picture.text(16, 48, "1,003 samples, 7 ranks with 2 workers each, one epoch", "s")
    picture.text(316, 74, "missing", "s e")
    picture.text(384, 74, "repeated", "s e")
    picture.text(444, 74, "exact", "s e")
    y = 84
    for row, counts in rows_of("exact: "):
        missing, repeated = re.match(r"(\d+) missing +(\d+) repeated", counts).groups()
        is_exact = missing == repeated == "0"
        picture.line(16, y, 444, y, "grid")
        title, detail = ON_RANKS[row]
        picture.text(16, y + 19, title, "t b" if row.startswith("shardwise") else "t")
        height = 28
        if detail:
            picture.text(16, y + 35, detail, "s m")
            height = 44
        for x, count in ((316, missing), (384, repeated)):
            picture.text(x, y + 19, count, "t e" if count == "0" else "bad b e")
        picture.text(
            444, y + 19, "yes" if is_exact else "no", "good b e" if is_exact else "bad b e"
        )
        y += height
    return picture.drawn(y + 12)


def speed() -> str:
    versions = {row: text.split()[0] for row, text in rows_of("versions and settings")}
    picture = Picture(
        "Speed beside other packages",
        "Samples per second of each package: decoded JPEGs, and bytes of 80 KB and of 300 bytes.",
    )
    picture.text(16, 48, "2 threads or worker processes, one epoch; samples per second", "s")
    y = 62
    for table, title, is_log in (
        ("whole: ", "JPEGs of 500 x 375 pixels, decoded", False),
        ("raw: ", "samples of 80 KB, as bytes", True),
        ("tiny: ", "samples of 300 bytes, as bytes", True),
    ):
        found = [(row, number(median.split()[0])) for row, median, *_ in rows_of(table)]
        picture.text(16, y + 18, title + ("; log scale from 100" if is_log else ""), "t b")
        y += 28
        most = max(value for _, value in found)
        low = 100 if is_log else 0
        for row, value in found:
            part = math.log(value / low) / math.log(most / low) if is_log else value / most
            is_ours = row.startswith("shardwise")
            name, use = PACKAGES[row]
            name += "" if is_ours else f" {versions[row]}"
            picture.text(190, y + 12, f"{name}, {use}" if use else name, "t n e")
            picture.rect(198, y + 1, 180 * part, 13, "ours" if is_ours else "peer")
            picture.text(202 + 180 * part, y + 12, f"{value:,.0f}", "s")
            y += 18
        y += 12
    return picture.drawn(y + 4)


def resume(folder: str) -> str:
    def steps(name: str) -> list[dict]:
        with open(os.path.join(folder, name, "steps.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    whole = {line["step"]: line for line in steps("whole")}
    killed: dict[int, dict] = {}
    resumed: dict[int, dict] = {}
    for line in steps("killed"):  # the steps from the checkpoint to the kill come twice
        run = resumed if resumed or line["step"] in killed else killed
        run[line["step"]] = line
    kill, last = max(killed), max(resumed)
    start = min(resumed) - 1
    before, after = killed[kill]["ranks"], resumed[last]["ranks"]
    for run in (killed, resumed):
        for step, line in run.items():
            assert line["samples"] == whole[step]["samples"], f"step {step} has other samples"
    num_samples = sum(len(line["samples"]) for line in whole.values() if line["epoch"] == 0)

    picture = Picture(
        "Killed in mid-epoch, resumed on other ranks",
        f"Loss by step of a training without a stop, and of one that was killed on {before} ranks and "
        f"resumed on {after}; the curves cover each other.",
    )
    picture.text(16, 48, f"{num_samples:,} handwritten digits; {len(whole[1]['samples'])} samples a step", "s")
    left, top, width, height = 64, 66, 376, 190
    most = math.ceil(max(line["loss"] for line in whole.values()))

    def x_of(step: float) -> float:
        return left + width * step / last

    for loss in range(most + 1):
        y = top + height * (1 - loss / most)
        picture.line(left, y, left + width, y, "grid")
        picture.text(left - 8, y + 4, f"{loss}", "s e")
    picture.add(f'<text transform="translate(22 {top + height / 2:g}) rotate(-90)" class="s c">loss</text>')
    for run, kind, stroke in (
        (whole, "grid", 9),
        (killed, "ourline", 3),
        (resumed, "peerline", 1.5),
    ):
        path = " ".join(
            f"{x_of(step):.1f},{top + height * (1 - line['loss'] / most):.1f}" for step, line in run.items()
        )
        picture.add(f'<polyline points="{path}" class="line {kind}" style="stroke-width:{stroke}"/>')
    picture.line(x_of(kill), top, x_of(kill), top + height, "arrow")
    picture.text(x_of(kill) + 6, top + 14, f"SIGKILL after step {kill}", "bad b")
    picture.text(x_of(kill) + 6, top + 30, f"last checkpoint: step {start}", "s")
    for i, (kind, text) in enumerate(
        (
            ("s", f"wide, gray: {before} ranks, no stop"),
            ("ours b", f"{before} ranks, until the kill"),
            ("peertext b", f"{after} ranks, resumed"),
        )
    ):
        picture.text(left + width, top + 58 + 18 * i, text, f"{kind} e")

    y0 = top + height + 44
    picture.text(16, y0 - 8, "Relative difference from the loss without a stop", "t")
    powers, row = range(-6, -10, -1), 22
    for i, power in enumerate(powers):
        picture.line(left, y0 + 14 + row * i, left + width, y0 + 14 + row * i, "grid")
        picture.text(left - 8, y0 + 18 + row * i, f"1e{power}", "s e")
    zero = y0 + 14 + row * len(powers)
    picture.line(left, zero, left + width, zero, "grid")
    picture.text(left - 8, zero + 4, "equal", "s e")
    largest = 0.0
    for run, kind in ((killed, "ours"), (resumed, "peertext")):
        for step, line in run.items():
            part = abs(line["loss"] / whole[step]["loss"] - 1)
            largest = max(largest, part)
            y = zero if part == 0 else y0 + 14 + row * (powers[0] - max(math.log10(part), powers[-1]))
            picture.add(f'<circle cx="{x_of(step):.1f}" cy="{y:.1f}" r="2.2" class="{kind}"/>')
    assert largest < 10 ** powers[0], f"the losses differ by {largest:g}"
    for step in range(0, last + 1, 10):
        picture.text(x_of(step), zero + 20, f"{step}", "s c")
    picture.text(left + width / 2, zero + 38, "step", "s c")
    picture.text(16, zero + 60, "Both trainings had the same samples in each step.", "good b")
    return picture.drawn(zero + 76)


def main() -> int:
    parser = argparse.ArgumentParser(description="draws docs/pictures")
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--run", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.program, folder)
        pictures = {
            "tar-to-tensor": tar_to_tensor(program),
            "shuffle": shuffle(program),
            "cache": cache(program),
            "exact": exact(),
            "speed": speed(),
        }
    if options.run:
        pictures["resume"] = resume(options.run)
    differ = 0
    for name, drawn in pictures.items():
        path = os.path.join(DOCS, "pictures", f"{name}.svg")
        if options.check:
            with open(path, encoding="utf-8") as file:
                if file.read() != drawn:
                    print(
                        f"docs/pictures/{name}.svg is not what the program and docs/bench-report.md say; run tools/pictures.py PROGRAM"
                    )
                    differ = 1
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(drawn)
    return differ


if __name__ == "__main__":
    sys.exit(main())
