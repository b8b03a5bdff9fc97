#!/usr/bin/env python3
"""Runs the sections of sections.py, and writes one report of all. tools/bench.sh builds what this
needs and passes its options on; its help explains them.

Each result is a file results/SECTION.json in the build folder, with the tables of all values. A
result is kept if it is of the same commit and options.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python"))

from sections import FULL_SAMPLES, QUICK_SAMPLES, SECTIONS, Section
from tables import Table, quartiles

SOURCE = pathlib.Path(__file__).resolve().parents[1]
SIMD = ("sse4_1", "avx2", "avx512f", "avx512bw", "avx512vbmi", "avx512_vnni", "amx_tile")
FAILED, LEFT_OUT = 1, 3
# Fields of rows of Google Benchmark; others are counters of the row.
KNOWN_FIELDS = {
    "real_time",
    "cpu_time",
    "iterations",
    "repetitions",
    "repetition_index",
    "family_index",
    "per_family_instance_index",
    "threads",
    "items_per_second",
    "bytes_per_second",
}

Result = dict[str, Any]


def first_line(*command: str) -> str:
    """Returns the first line that a command prints, or "" if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (done.stdout.splitlines() or [""])[0].strip()


def commit() -> str:
    """Returns the commit, and a hash of the changes to it, if there are any."""
    git = ("git", "-C", str(SOURCE))
    name = first_line(*git, "rev-parse", "--short=12", "HEAD") or "unknown"
    changes = subprocess.run([*git, "diff", "HEAD"], capture_output=True, check=False).stdout
    return name + (f" with changes {hashlib.sha256(changes).hexdigest()[:8]}" if changes else "")


def machine(build: pathlib.Path) -> dict[str, str]:
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    name = re.search(r"model name\s*: (.*)", cpu)
    flags = set((re.search(r"flags\s*: (.*)", cpu) or [""])[0].split())
    cache = build / "CMakeCache.txt"
    cached = cache.read_text() if cache.exists() else ""
    compiler = re.search(r"CMAKE_CXX_COMPILER:\w+=(.*)", cached)
    build_flags = re.search(r"CMAKE_CXX_FLAGS_RELWITHDEBINFO:\w+=(.*)", cached)
    return {
        "CPU": f"{name[1] if name else platform.processor()}, {os.cpu_count()} cores",
        "SIMD": ", ".join(flag for flag in SIMD if flag in flags) or "none of those asked for",
        "memory": f"{int(memory[1]) / 2**20:.1f} GiB" if memory else "unknown",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system of the data": first_line("stat", "-f", "-c", "%T", str(build)),
        "compiler": first_line(compiler[1], "--version") if compiler else "unknown",
        "flags": build_flags[1] if build_flags else "unknown",
        "Python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Returns the installed packages of the groups `test` and `bench`."""
    import tomllib

    with open(SOURCE / "pyproject.toml", "rb") as file:
        groups = tomllib.load(file)["project"]["optional-dependencies"]
    found = {}
    for wanted in [*groups["test"], *groups["bench"], "nvidia-dali-cuda120", "simplejpeg"]:
        name = re.split(r"[\[<>=]", wanted)[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def nanoseconds(row: dict[str, Any]) -> float:
    return {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[row["time_unit"]]


def google_tables(section: Section, output: dict[str, Any]) -> list[Table]:
    """Returns the rows of a program of Google Benchmark: time per item, or per iteration."""
    table = Table("", "ns", reference="none")  # a row has its own limit, or none
    counters: dict[str, dict[str, list[float]]] = {}
    rows = output["benchmarks"]  # in a random order
    rows.sort(key=lambda row: (row["family_index"], row["per_family_instance_index"]))
    for row in rows:
        if row.get("run_type") == "aggregate":
            continue
        name = re.sub(
            r"/(real_time|manual_time|process_time|iterations:\d+|repeats:\d+)(?=/|$)",
            "",
            row["run_name"],
        )
        if row.get("error_occurred"):
            if name not in table.notes:
                table.note(name, f"failed: {row['error_message']}")
            continue
        time_ns = row["real_time"] * nanoseconds(row)
        items = row.get("items_per_second", 0) * time_ns / 1e9 or 1.0
        table.add(name, time_ns / items)
        mine = counters.setdefault(name, {})
        mine.setdefault("CPU", []).append(row["cpu_time"] * nanoseconds(row) / items)
        if "bytes_per_second" in row:
            mine.setdefault("MB/s", []).append(row["bytes_per_second"] / 1e6)
        for key, value in row.items():
            if isinstance(value, (int, float)) and key not in KNOWN_FIELDS:
                mine.setdefault(key, []).append(value)
    for name, values in counters.items():
        limit = section.limit_of(name)
        if limit in table.rows:
            table.references[name] = limit
        for key, all_values in values.items():
            middle = statistics.median(all_values)
            shown = time_text(middle) if key == "CPU" else f"{middle:,.4g}"
            table.note(name, f"{key} {shown}")
    return [table]


def time_text(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"


def value_text(table: Table, value: float) -> str:
    if table.unit == "ns":
        return time_text(value)
    return f"{value:,.{table.digits}f} {table.unit}"


def markdown(table: Table) -> list[str]:
    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"**{cell(table.title)}**", ""] if table.title else []
    rows = [*table.rows, *(name for name in table.notes if name not in table.rows)]
    if not table.rows:
        lines += ["| | |", "|---|---|"]
        return lines + [f"| {cell(row)} | {cell(table.notes[row])} |" for row in rows] + [""]
    lines += ["| | median | quartiles | ratio | |", "|---|---|---|---|---|"]
    for row in rows:
        cells = ["", "", ""]
        if row in table.rows:
            low, middle, high = (value_text(table, v) for v in quartiles(table.rows[row]))
            cells[:2] = [middle, f"{low} to {high}" if len(table.rows[row]) > 1 else ""]
            ratio, reference = table.ratio(row), table.reference_of(row)
            if ratio is not None and reference != row:
                cells[2] = f"{ratio:.3g} x {cell(reference)}"
            elif reference == row:
                cells[2] = "1"
        lines.append(f"| {cell(row)} | {' | '.join(cells)} | {cell(table.notes.get(row, ''))} |")
    return [*lines, ""]


class Runner:
    """Runs sections, and keeps their results."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.build: pathlib.Path = options.build
        self.results = self.build / "results"
        self.results.mkdir(parents=True, exist_ok=True)
        self.rounds = 1 if options.quick else options.rounds
        self.key = {
            "commit": commit(),
            "rounds": self.rounds,
            "quick": options.quick,
            "data": str(self.data),
        }
        samples = QUICK_SAMPLES if options.quick else FULL_SAMPLES
        cpp = self.data / "cpp"
        self.fixtures = {
            "tiny": cpp / f"tiny-{samples}",
            "images": cpp / f"images-{samples // 100}",
            "pictures": cpp / "pictures-256",
        }
        self.environment = os.environ | {
            "SHARDWISE_BENCH_DIR": str(cpp),
            "SHARDWISE_BENCH_SAMPLES": str(samples),
        }

    @property
    def data(self) -> pathlib.Path:
        return self.build / ("data-quick" if self.options.quick else "data")

    def words(self, command: tuple[str, ...], json_file: pathlib.Path) -> list[str]:
        """Returns a command with its fields filled in."""
        fields = {
            "build": self.build,
            "source": SOURCE,
            "python": sys.executable,
            "program": self.build / "bin" / "shardwise",
            "data": self.data,
            "json": json_file,
            "rounds": self.rounds,
            "many": self.rounds if self.options.quick else 4 * self.rounds,
            "curl_shards": 2 if self.options.quick else 40,
            "scale": self.options.scale,
            **self.fixtures,
        }
        return [word.format(**fields) for word in command]

    def missing(self, section: Section) -> str | None:
        """Returns why a section cannot run here."""
        for need in section.needs:
            kind, _, name = need.partition(":")
            if kind == "module" and importlib.util.find_spec(name) is None:
                return f"the Python package {name} is not installed"
            if kind == "program" and shutil.which(name, path=_search_path()) is None:
                return f"the program {name} is not installed"
            if kind == "gpu" and not os.path.exists("/dev/nvidia0"):
                return "no NVIDIA GPU"
            if kind == "scale" and self.options.scale is None:
                return "needs --scale FOLDER"
        program = pathlib.Path(self.words(section.commands[0][:1], pathlib.Path())[0])
        if program.is_absolute() and not program.exists():
            return f"the program {program.name} was not built"
        return None

    def make_fixtures(self, log: Any) -> None:
        """Makes the shards of the benches in C++, for benches in Python."""
        for program, rows in (("loader_bench", "Memcpy"), ("image_loader_bench", "Images_Bare")):
            command = [
                f"{self.build}/bench/loader/{program}",
                f"--benchmark_filter={rows}",
                "--benchmark_min_time=0.001",
            ]
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, check=True)

    def run(self, section: Section) -> Result:
        """Runs the commands of a section. Returns its result: tables, a text, or "failed"."""
        result: Result = {
            **self.key,
            "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "load_before": os.getloadavg(),
            "tables": [],
            "text": "",
        }
        environment = self.environment | (section.quick_environment if self.options.quick else {})
        environment["PATH"] = _search_path()
        start = time.monotonic()
        self.data.mkdir(parents=True, exist_ok=True)
        with open(self.results / f"{section.name}.log", "w") as log:
            try:
                if "fixtures" in section.needs:
                    self.make_fixtures(log)
                for number, command in enumerate(section.commands, 1):
                    raw = self.results / f"{section.name}.raw-{number}.json"
                    raw.unlink(missing_ok=True)
                    words = self.words(command, raw)
                    words += section.quick if self.options.quick else ()
                    done = subprocess.run(
                        words,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                        check=True,
                    )
                    log.write(done.stdout)
                    _collect(section, result, raw, done.stdout)
            except (subprocess.CalledProcessError, OSError, ValueError) as error:
                result["failed"] = f"{error}; see results/{section.name}.log"
        result["seconds"] = time.monotonic() - start
        result["load_after"] = os.getloadavg()
        return result

    def kept(self, section: Section) -> Result | None:
        """Returns the result of this commit and these options, if there is one."""
        try:
            result: Result = json.loads((self.results / f"{section.name}.json").read_text())
        except (OSError, ValueError):
            return None
        is_same = all(result.get(name) == value for name, value in self.key.items())
        return result if is_same and "failed" not in result else None

    def result_of(self, section: Section) -> Result:
        why = self.missing(section)
        if why is not None:
            return {"left_out": why}
        kept = None if self.options.again else self.kept(section)
        if kept is not None:
            return kept
        print(f"{section.name}: {section.title} ...", flush=True)
        result = self.run(section)
        (self.results / f"{section.name}.json").write_text(json.dumps(result, indent=1))
        return result


def _search_path() -> str:
    """Returns PATH with the folders of servers, which users' PATH may lack."""
    return os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"


def _collect(section: Section, result: Result, raw: pathlib.Path, output: str) -> None:
    if section.kind == "google":
        made = google_tables(section, json.loads(raw.read_text()))
        result["tables"] += [table.as_json() for table in made]
    elif section.kind == "tables":
        result["tables"] += json.loads(raw.read_text())["tables"]
    else:
        result["text"] += output


def state_of(result: Result) -> str:
    if "left_out" in result:
        return f"left out: {result['left_out']}"
    return "failed" if "failed" in result else f"{result['seconds']:.0f} s"


def section_text(section: Section, result: Result) -> list[str]:
    lines = [f"## {section.name}: {section.title}", ""]
    if "left_out" in result:
        return [*lines, f"Left out: {result['left_out']}.", ""]
    loads = (", ".join(f"{v:.1f}" for v in result[name]) for name in ("load_before", "load_after"))
    about = "load {} before, {} after".format(*loads)
    lines += [f"`bench/{section.source}`, {result['date']}, {about}.", ""]
    if "failed" in result:
        lines += [f"**Failed:** {result['failed']}", ""]
    for fields in result["tables"]:
        lines += markdown(Table.from_json(fields))
    if result["text"]:
        text = result["text"].rstrip()
        lines += [text, ""] if section.kind == "markdown" else ["```", text, "```", ""]
    return lines


def report(
    about: dict[str, Any], results: list[tuple[Section, Result]], quick: bool, rounds: int
) -> str:
    """Returns the report as Markdown. `about` has the date, the commit, "machine" and
    "versions"."""
    lines = ["# Figures of one run", ""]
    if quick:
        lines += ["**Made with --quick: small data and one round. Its figures mean nothing.**", ""]
    lines += [
        f"{about['date']}, commit {about['commit']}, {rounds} rounds.",
        "",
        "Rows of a section take turns. A value is the median over the rounds, beside the first and "
        "third quartile. Times in C++ are per item, if the row counts items, and include all "
        "threads. A ratio is the median, round by round, of a row's value divided by that of the "
        "row named, which is the limit or the first row. `results/` beside this file has all "
        "values. Load is that of the last 1, 5 and 15 minutes.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in about["machine"].items()),
        "",
        "| package | version |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in about["versions"].items()),
        "",
        "| section | |",
        "|---|---|",
        *(f"| {section.name} | {state_of(result)} |" for section, result in results),
        "",
    ]
    for section, result in results:
        lines += section_text(section, result)
    return "\n".join(lines)


def options_of(arguments: list[str]) -> argparse.Namespace:
    names = [section.name for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="tools/bench.sh", add_help=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="+", choices=names, action="extend", metavar="SECTION")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scale", type=pathlib.Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("-o", dest="output", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build-bench")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    options.build = options.build.resolve()
    options.only = options.only or names
    options.output = options.output or options.build / "report.md"
    folder = options.output.absolute().parent
    if options.output.is_dir() or not (folder.is_dir() or folder == options.build):
        parser.error(f"-o {options.output}: not a file in a folder that exists")
    return options


def main() -> int:
    options = options_of(sys.argv[1:])
    if options.list:
        for section in SECTIONS:
            print(f"{section.name:18} bench/{section.source:32} {section.title}")
        return 0
    if options.check:
        return 0
    runner = Runner(options)
    about = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "commit": runner.key["commit"],
        "machine": machine(options.build),
        "versions": versions(),
    }
    results: list[tuple[Section, Result]] = []
    for section in SECTIONS:
        if section.name in options.only:
            result = runner.result_of(section)
            print(f"{section.name}: {state_of(result)}", flush=True)
        else:  # in the report if an earlier call has run it
            kept = runner.kept(section)
            if kept is None:
                continue
            result = kept
        results.append((section, result))
        # After each section: an interrupted run has a report, too.
        options.output.write_text(report(about, results, options.quick, runner.rounds))
    print(f"written: {options.output}")
    if any("failed" in result for _, result in results):
        return FAILED
    return LEFT_OUT if any("left_out" in result for _, result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
