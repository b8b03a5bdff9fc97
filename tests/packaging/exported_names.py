#!/usr/bin/env python3
"""Compares the names that our shared libraries export with the public headers.

    exported_names.py INCLUDE-FOLDER LIBRARY...

Each exported name of the namespace shardwise must be declared in a public header, or be in
shardwise::detail or shardwise::libtorch::detail, which are for the library itself."""

import os
import re
import subprocess
import sys

NAME = re.compile(r"\bshardwise::(?:libtorch::)?(\w+)")
COMMENT = re.compile(r"//[^\n]*")


def public_words(folder):
    words = set()
    for path, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(path, name), encoding="utf-8") as header:
                words.update(re.findall(r"\w+", COMMENT.sub("", header.read())))
    return words


def first_own_name(symbol):
    """Returns the first name after shardwise:: in a demangled symbol. Returns None for other
    namespaces."""
    symbol = re.sub(r"^(?:vtable|typeinfo|typeinfo name|guard variable|VTT) for ", "", symbol)
    arguments = symbol.find("(")
    name = NAME.search(symbol)
    if name is None or (0 <= arguments < name.start()) or "std::" in symbol[: name.start()]:
        return None
    return name.group(1)


def foreign(symbols, words):
    found = {}
    for symbol in symbols:
        name = first_own_name(symbol)
        if name is not None and name != "detail" and name not in words:
            found.setdefault(name, symbol)
    return found


def exported(library):
    command = ["nm", "-DC", "--defined-only", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split(" ", 2)[2] for line in lines]


def check_itself():
    words = {"Dataset", "open"}
    symbols = [
        "shardwise::Dataset::open(std::string const&)",
        "shardwise::detail::hex(std::string)",
        "vtable for shardwise::Secret",
        "shardwise::libtorch::hidden(shardwise::Dataset)",
        "std::vector<shardwise::Other>::push_back()",
        "typeinfo name for shardwise::libtorch::detail::Rank",
    ]
    assert set(foreign(symbols, words)) == {"Secret", "hidden"}, foreign(symbols, words)


def main():
    check_itself()
    words = public_words(sys.argv[1])
    failed = False
    for library in sys.argv[2:]:
        symbols = exported(library)
        own = [symbol for symbol in symbols if first_own_name(symbol) is not None]
        if not own:
            sys.exit(f"{library} exports nothing of shardwise")
        in_detail = sum(first_own_name(symbol) == "detail" for symbol in own)
        print(f"{os.path.basename(library)}: {len(own)} names of shardwise, {in_detail} of them in detail")
        for name, symbol in sorted(foreign(symbols, words).items()):
            failed = True
            print(f"  {name}: in no public header, and not in detail: {symbol}")
    sys.exit(1 if failed else 0)


main()
