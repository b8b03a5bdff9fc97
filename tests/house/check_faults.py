#!/usr/bin/env python3
"""Checks tests/faults.md against the tests.

    check_faults.py SOURCE_DIR

Checks that
- the numbers of rows occur once each, and in order;
- every test that a row names exists, and a row without a test says "No test yet", or names what CI runs;
- every cited row exists. Tests cite a row as `faults.md N` in a comment or as RowN_ in a name, and
  SECURITY.md as [N].
Prints the violations, and exits with 1 if there are any."""

import os
import re
import sys

ROW = re.compile(r"^\| *(\d+) *\|.*\|([^|]*)\|$", re.M)
CITED = re.compile(r"faults\.md (\d+(?:(?:, | and | to )\d+)*)")
PROMISED = re.compile(r"\[(\d+(?:, \d+)*)\]")
OLD_STYLE = re.compile(r"(?://|#).*(?:\bRows? \d|\bfaults(?:\.md)? rows? \d)")
TEST = re.compile(r"^TEST\w*\(\s*(\w+),\s*(\w+)\)", re.M)


def numbers(words):
    """Returns the numbers of the rows in `words`, e.g. "2, 3" or "42 to 44"."""
    found = set()
    for part in re.split(r", | and ", words):
        first, _, last = part.partition(" to ")
        found.update(range(int(first), int(last or first) + 1))
    return found


def problems(table, sources, security="", root=None):
    """Returns the contradictions between the text of the table and the sources, a dict from path to text."""
    tests = {f"{suite}.{name}" for text in sources.values() for suite, name in TEST.findall(text)}
    rows = set()
    for number, shown_by in ROW.findall(table):
        if int(number) != len(rows) + 1:
            yield f"row {number} does not follow row {len(rows)}"
        rows.add(int(number))
        named = re.findall(r"`([^`]+)`", shown_by)
        if not named and "No test yet" not in shown_by:
            yield f"row {number} names no test, and does not say \"No test yet\""
        for name in named:
            is_file = "/" in name and root is not None and os.path.exists(os.path.join(root, name))
            if name not in tests and not is_file:
                yield f"row {number}: there is no test {name}"
    for words in PROMISED.findall(security):
        for number in sorted(numbers(words) - rows):
            yield f"SECURITY.md: there is no row {number}"
    for path, text in sorted(sources.items()):
        cited = {n for words in CITED.findall(text) for n in numbers(words)}
        cited |= {int(n) for _, name in TEST.findall(text) for n in re.findall(r"^Row(\d+)_", name)}
        for number in sorted(cited - rows):
            yield f"{path}: there is no row {number}"
        for line in OLD_STYLE.findall(text):
            yield f"{path}: cite a row as `faults.md N`: {line}"


def check_itself():
    """Tests that each kind of contradiction is found in a small example, and none in a correct one."""
    good = "| 1 | a | b | `A.B` |\n| 2 | a | b | No test yet. |\n| 3 | a | b | `A.Row3_C` |\n"
    source = "// faults.md 1 to 2, 3\nTEST(A, B) {}\nTEST_F(A, Row3_C) {}\n"
    assert not list(problems(good, {"t.cc": source})), list(problems(good, {"t.cc": source}))
    for table, text in (
        (good.replace("A.B", "A.C"), source),
        (good.replace("No test yet", "None"), source),
        (good.replace("| 2 |", "| 1 |"), source),
        (good, source.replace("2, 3", "2 and 4")),
        (good, source.replace("1 to 2", "1 to 5")),
        (good, source + "TEST(A, Row9_D) {}\n"),
        (good, source + "// Row" + " 3.\n"),
    ):
        assert list(problems(table, {"t.cc": text})), (table, text)
    assert list(problems(good, {"t.cc": source}, "Promised [1, 4].")) and not list(
        problems(good, {"t.cc": source}, "Promised [1, 3].")
    )


def main(root):
    sources = {}
    for folder, _, files in os.walk(os.path.join(root, "tests")):
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith((".cc", ".h", ".py")) and name != os.path.basename(__file__):
                with open(path, encoding="utf-8") as file:
                    sources[os.path.relpath(path, root)] = file.read()
    with open(os.path.join(root, "SECURITY.md"), encoding="utf-8") as file:
        security = file.read()
    with open(os.path.join(root, "tests", "faults.md"), encoding="utf-8") as file:
        found = list(problems(file.read(), sources, security, root))
    print("\n".join(found))
    return 1 if found or not sources else 0


if __name__ == "__main__":
    check_itself()
    sys.exit(main(sys.argv[1]))
