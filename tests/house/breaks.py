"""Breaks the library on purpose, one line at a time, and records whether the tests notice.

    python3 tests/house/breaks.py BUILD RESULTS [--count 20] [--seed 1]

Run it in a clone without changes, whose folder BUILD is configured with the preset core or test.
Each break changes a line of a source of one module: a constant, a comparison, a logical operator, or
the condition of a check. It runs the tests of the module, then those of the modules above, until one
fails. RESULTS, a JSON file, gets an entry for each break. A run that was stopped continues after the
last entry. The same seed and the same sources give the same breaks.
Prints the breaks that no test noticed. Some of them may not change the behaviour; check each.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
# Each module with the modules that use it, nearest first. CONTRIBUTING.md has a picture of them.
ABOVE = {
    "base": ["tar", "index", "storage", "order", "ingest", "data", "decode", "loader", "tools"],
    "tar": ["ingest", "data", "tools"],
    "index": ["ingest", "data", "tools"],
    "storage": ["data", "loader", "tools"],
    "order": ["data", "loader", "tools"],
    "ingest": ["data", "tools"],
    "data": ["loader", "tools"],
    "decode": ["loader", "tools"],
    "loader": ["tools"],
}
SECONDS_A_TEST = 600  # a break may make a test wait forever


def comparison(line):
    """Yields variants of the line, each with one of its comparisons changed."""
    other = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "}
    for match in re.finditer(r" (<|<=|>|>=|==|!=) ", line):
        yield line[: match.start()] + other[match[0]] + line[match.end() :]


def logic(line):
    for match in re.finditer(r" (&&|\|\|) ", line):
        yield line[: match.start()] + {" && ": " || ", " || ": " && "}[match[0]] + line[match.end() :]


def constant(line):
    for match in re.finditer(r"(?<![\w.\"'])(\d{1,9})(?![\w.\"'])", line):
        yield line[: match.start()] + str(int(match[1]) + 1) + line[match.end() :]


def check(line):
    """Yields the line with its condition made false."""
    match = re.fullmatch(r"(\s*)if \((.*)\) (throw|return|fail|\w+\().*;", line)
    if match:
        yield line.replace(f"if ({match[2]})", f"if (false && ({match[2]}))", 1)


def breaks_of(room):
    """Returns every (file, line number, new line) for the module's sources."""
    found = []
    for path in sorted((ROOT / "src" / room).rglob("*.cc")):
        for number, line in enumerate(path.read_text().split("\n")):
            if re.match(r"\s*(//|#|using |namespace |static_assert)", line) or '"' in line:
                continue
            for kind in (comparison, logic, constant, check):
                found += [(path, number, changed) for changed in kind(line)]
    return found


def tests_of(build, room):
    """Returns the names of a module's ctest tests, and the programs that they run."""
    shown = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True
    )
    tests = []
    for test in json.loads(shown.stdout)["tests"]:
        program = test.get("command", [""])[0]
        labels = next((p["value"] for p in test["properties"] if p["name"] == "LABELS"), [])
        if f"/tests/{room}/" in program and "libtorch" not in labels:
            tests.append((test["name"], program))
    return tests


def first_failure(build, room):
    """Returns the first test that fails, in the module or above it; "" if all pass, None if the build fails."""
    for place in [room, *ABOVE[room]]:
        tests = tests_of(build, place)
        targets = sorted({pathlib.Path(program).relative_to(build).as_posix() for _, program in tests})
        if subprocess.run(["ninja", "-C", build, *targets], capture_output=True).returncode != 0:
            return None
        names = "|".join(re.escape(name) for name, _ in tests)
        run = subprocess.run(
            ["ctest", "--test-dir", build, "--parallel", "2", "--stop-on-failure",
             "--timeout", str(SECONDS_A_TEST), "--tests-regex", f"^({names})$"],
            capture_output=True, text=True,
        )
        if run.returncode != 0:
            failed = re.search(r"Test +#\d+: (\S+) .*\*\*\*", run.stdout)
            return failed[1] if failed else "?"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build = options.build.resolve()
    done = json.loads(options.results.read_text()) if options.results.exists() else []
    dice = random.Random(options.seed)
    rooms = list(ABOVE)
    drawn = 0
    while sum(entry["found"] is not None for entry in done) < options.count or drawn < len(done):
        room = rooms[drawn % len(rooms)]
        path, number, changed = dice.choice(breaks_of(room))
        drawn += 1
        if drawn <= len(done):
            continue
        whole = path.read_text()
        lines = whole.split("\n")
        entry = {"file": str(path.relative_to(ROOT)), "line": number + 1, "was": lines[number].strip(),
                 "is": changed.strip()}
        lines[number] = changed
        try:
            path.write_text("\n".join(lines))
            entry["found"] = first_failure(str(build), room)
        finally:
            path.write_text(whole)
        done.append(entry)
        options.results.write_text(json.dumps(done, indent=1))
        print(f"{entry['file']}:{entry['line']}: {entry['is']}: {entry['found']!r}", flush=True)
    built = [entry for entry in done if entry["found"] is not None]
    print(f"{sum(bool(entry['found']) for entry in built)} of {len(built)} breaks were noticed")


if __name__ == "__main__":
    main()
