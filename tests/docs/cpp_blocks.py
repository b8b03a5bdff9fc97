#!/usr/bin/env python3
"""Writes the C++ of a page into a source that is compiled: all its ```cpp blocks, in their order.

    cpp_blocks.py PAGE SOURCE

Each block lies in a namespace of its own, but for one with a main(); its #include lines come first. A block that is not a whole
declaration becomes the body of a function, whose parameters stand in a comment right before the block:
<!-- given: shardwise::Dataset& data -->; it has Shardwise's header, and sl for shardwise::libtorch.
Compilers report what is wrong at the page and line."""

import os
import re
import sys

BLOCK = re.compile(r"(?:^<!-- given: (?P<given>[^\n]*?) -->\n+)?^```cpp\n(?P<code>.*?)^```$", re.S | re.M)


def source_of(text, page):
    name = re.sub(r"\W", "_", os.path.splitext(os.path.basename(page))[0])
    includes, body = [], []
    for number, block in enumerate(BLOCK.finditer(text), 1):
        line = text.count("\n", 0, block.start("code")) + 1
        is_program = re.search(r"^int main\(", block["code"], re.M) is not None
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


def check_itself():
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
    with open(sys.argv[1], encoding="utf-8") as FILE:
        SOURCE = source_of(FILE.read(), os.path.abspath(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as FILE:
        FILE.write(SOURCE)
