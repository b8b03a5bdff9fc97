#!/usr/bin/env python3
"""Writes all ```cpp blocks of a page into a C++ source, which a test then compiles.

    cpp_blocks.py PAGE SOURCE [PROGRAM]

Writes to SOURCE:
- all #include lines first, then each block in a separate namespace, except a block with a main();
- a block that is not a complete declaration as the body of a function. Shardwise's header is
  included for it, and sl means shardwise::libtorch. A comment right before the block gives the
  function's parameters: <!-- given: shardwise::Dataset& data -->

Writes to PROGRAM: the only block with a main(), unchanged, so it must have all #include lines that
it needs. PROGRAM is required if the page has such a block.

#line directives make compilers report errors at the page's lines."""

import os
import re
import sys

MAIN = re.compile(r"^int main\(", re.M)
BLOCK = re.compile(r"(?:^<!-- given: (?P<given>[^\n]*?) -->\n+)?^```cpp\n(?P<code>.*?)^```$", re.S | re.M)


def source_of(text, page):
    name = re.sub(r"\W", "_", os.path.splitext(os.path.basename(page))[0])
    includes, body = [], []
    for number, block in enumerate(BLOCK.finditer(text), 1):
        line = text.count("\n", 0, block.start("code")) + 1
        is_program = MAIN.search(block["code"]) is not None
        body.append("" if is_program else f"namespace {name}_{number} {{")
        if block["given"] is not None:
            of_libtorch = "sl::" in block["given"] + block["code"]
            header = "libtorch/advanced.h" if of_libtorch else "advanced.h"
            if (include := f"#include <shardwise/{header}>") not in includes:
                includes.append(include)
            if of_libtorch:
                body.append("namespace sl = shardwise::libtorch;")
            body.append(f"void example({block['given']}) {{")
        body.append(f'#line {line} "{page}"')
        for code in block["code"].splitlines():
            if code.startswith("#include"):
                if code not in includes:
                    includes.append(code)
                body.append("")
            else:
                body.append(code)
        if block["given"] is not None:
            body.append("}")
        body.append("" if is_program else "}")
    return "\n".join(includes + body) + "\n"


def program_of(text, page):
    """Returns only the block with a main(); None if the page has no such block."""
    programs = [block for block in BLOCK.finditer(text) if MAIN.search(block["code"])]
    if len(programs) > 1:
        sys.exit(f"{page}: {len(programs)} blocks have a main(): the test compiles one of a page")
    for block in programs:
        line = text.count("\n", 0, block.start("code")) + 1
        return f'#line {line} "{page}"\n{block["code"]}'
    return None


def check_itself():
    program = "# x\n```cpp\nint f();\n```\n```cpp\n#include <a>\nint main() {}\n```\n"
    assert program_of(program, "p.md") == '#line 6 "p.md"\n#include <a>\nint main() {}\n', program_of(program, "p.md")
    assert program_of("```cpp\nint f();\n```\n", "p.md") is None
    page = '# x\n```cpp\n#include <a>\nint f();\n```\n\n<!-- given: A<int> n -->\n```cpp\ng(n);\n```\n```sh\nls\n```\n'
    expected = [
        "#include <a>",
        "#include <shardwise/advanced.h>",
        "namespace p_1 {",
        '#line 3 "p.md"',
        "",
        "int f();",
        "}",
        "namespace p_2 {",
        "void example(A<int> n) {",
        '#line 9 "p.md"',
        "g(n);",
        "}",
        "}",
    ]
    assert source_of(page, "p.md").splitlines() == expected, source_of(page, "p.md")


if __name__ == "__main__":
    check_itself()
    PAGE = os.path.abspath(sys.argv[1])
    with open(PAGE, encoding="utf-8") as FILE:
        TEXT = FILE.read()
    WRITTEN = [source_of(TEXT, PAGE)]
    if (PROGRAM := program_of(TEXT, PAGE)) is not None:
        WRITTEN.append(PROGRAM)
    if len(WRITTEN) != len(sys.argv) - 2:
        sys.exit(f"{PAGE}: a block with a main() is to be named in tests/docs/CMakeLists.txt, and only there")
    for SOURCE, NAME in zip(WRITTEN, sys.argv[2:]):
        with open(NAME, "w", encoding="utf-8") as FILE:
            FILE.write(SOURCE)
