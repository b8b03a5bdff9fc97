#!/usr/bin/env python3
"""Checks the links between the project's pages: those at the top, all under docs/, and tests/faults.md.

    check_links.py FOLDER [FILE...]

FOLDER is the source folder, or the folder in which the pages are installed. A link to a file must
name an existing file, and a #fragment must name a heading of the page. Links to other sites are not
checked. Prints every wrong link, and every FILE that is missing in FOLDER. Exits with 1 if it
printed any."""

import os
import re
import sys


def pages(source):
    for name in sorted(os.listdir(source)):
        if name.endswith(".md"):
            yield os.path.join(source, name)
    yield os.path.join(source, "tests", "faults.md")
    for folder, _, files in sorted(os.walk(os.path.join(source, "docs"))):
        for name in sorted(files):
            if name.endswith(".md"):
                yield os.path.join(folder, name)


def without_code(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """Returns the fragments of a page's headings, as GitHub makes them."""
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```$", "", file.read(), flags=re.S | re.M)
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.M):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def problems(source):
    for page in pages(source):
        with open(page, encoding="utf-8") as file:
            text = without_code(file.read())
        for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, fragment = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            where = os.path.relpath(page, source)
            if os.path.relpath(there, source).startswith(".."):
                yield f"{where}: {target} lies outside"
            elif not os.path.exists(there):
                yield f"{where}: nothing is at {target}"
            elif fragment and fragment not in anchors(there):
                yield f"{where}: {target} has no such heading"


if __name__ == "__main__":
    FOUND = [f"{name} is missing" for name in sys.argv[2:] if not os.path.exists(os.path.join(sys.argv[1], name))]
    FOUND += problems(sys.argv[1])
    print("\n".join(FOUND))
    sys.exit(1 if FOUND else 0)
