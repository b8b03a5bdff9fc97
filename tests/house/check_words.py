#!/usr/bin/env python3
"""Counts sentences that must be read twice, in comments, texts and pages.

    check_words.py SOURCE_DIR            fails where a kind has more of them than LIMITS allows
    check_words.py SOURCE_DIR --list     prints each with its file and line
    check_words.py SOURCE_DIR --draw N [--seed S]    prints N random sentences of each kind

A sentence breaks a rule if it opens with a word that hides its subject (what, who, of, as, also ...), says
"0: that" for "0 means", has over 30 words, or uses a word of WORDS. Counts three kinds: comments
and docstrings of include, src, python and tools; texts, which are string literals there; and pages,
which are README and docs."""

import argparse
import ast
import io
import pathlib
import random
import re
import sys
import tokenize

# Largest number of sentences that break a rule, per thousand of each kind. Never raise these
# limits.
LIMITS = {"comments": 5, "texts": 10, "pages": 10}

MAX_WORDS = 30
OPENINGS = re.compile(
    r"^(what|who|whoever|whose|of|as|also|so|nothing|nobody|none|that of|those|the same|so many|how many)\b", re.I)
NUMBERS = re.compile(r"(^|[\s(;,])(0|1|-1|empty|none|null): [a-z]")
WORDS = re.compile(
    r"\b(dear|dearer|believed?|told|lies at|whoever|nobody|so many|of its own|of their own|goes by|go by|held against"
    r"|holds? (\w+ ){0,3}against|is none|are none|for ever|(is|are) meant to do|is no \w+ (of|that)|beside which|let be"
    r"|it(self)? comes? down|comes? to nothing|patient)\b", re.I)
FOLDERS = ("include", "src", "python", "tools")


def cut(text):
    """Yields the sentences of a paragraph."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\b(e\.g|i\.e|cf|etc|vs)\.", lambda found: found[0].replace(".", ""), text)
    for part in re.split(r"(?<=[.?!])\s+(?=[A-Z`\"'(])", text):
        if len(re.findall(r"[A-Za-z]{2,}", part)) >= 3:
            yield part.strip()


def why(sentence):
    """Returns the rule that a sentence breaks, or None."""
    plain = re.sub(r"`[^`]*`", "x", sentence)
    if plain.endswith("?"):
        return None
    if OPENINGS.match(plain.lstrip("*_(")) and not plain.startswith("of "):  # "of shards": a member's comment
        return "opening"
    if NUMBERS.search(plain):
        return "0 means"
    if len([word for word in plain.split() if re.search(r"\w", word)]) > MAX_WORDS:
        return "long"
    if WORDS.search(plain):
        return "word"
    return None


def paragraphs_of_cpp(text):
    """Yields (line, paragraph) of each comment. A labelled line or a Doxygen tag begins a paragraph."""
    start, lines = 0, []
    in_code = False
    for number, line in enumerate(text.split("\n") + [""], 1):
        found = re.match(r"^(.*?)//[/!]?<? ?(.*)$", line)
        is_alone = found and not found[1].strip()
        trailing = found and found[1].strip() and re.search(r"[;,{)}]\s*$", found[1])
        body = found[2] if found and (is_alone or trailing) else None
        if body is not None and "NOLINT" in body:
            body = None
        if body is not None and body.startswith("```"):
            in_code = not in_code
            body = ""
        is_end = (body is None or not body.strip() or trailing or in_code or body.startswith("    ")
                  or re.search(r"[|{}]|--|->|\S   +\S", body))
        tag = body and re.match(r"^(@\w+\s+(?:\w+  +)?|[A-Z][a-z]+: +|[*-] )", body)
        if (is_end or tag) and lines:
            yield start, " ".join(lines)
            lines = []
        if body is None or in_code or not body.strip():
            if body is None:
                in_code = False
            continue
        if is_end and not trailing:
            continue
        if not lines:
            start = number
        lines.append(re.sub(r"^@\w+\s+(?:\w+  +)?", "", body))
        if trailing:
            yield start, " ".join(lines)
            lines = []


def texts_of_cpp(text):
    """Yields (line, text) of each string literal with words. Adjacent literals are joined."""
    code = re.sub(r"(?m)^\s*//.*$|^#include.*$", "", text)
    for found in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', code):
        words = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0])).replace('\\"', '"')
        line = code.count("\n", 0, found.start()) + 1
        for part in re.split(r"\\n", words):
            yield line, part


def of_python(text):
    """Yields (kind, line, paragraph) of the comments, docstrings and other strings."""
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.body and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
                docstrings.add(node.body[0].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            kind = "comments" if node in docstrings else "texts"
            for paragraph in re.split(r"\n\s*\n", node.value):
                lines = [line for line in paragraph.split("\n") if not re.match(r"^    \s+|.*\S   +\S", line)]
                if kind == "comments" or "\n" not in node.value:
                    yield kind, node.lineno, " ".join(lines)
    start, lines = 0, []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if not lines:
                start = token.start[0]
            lines.append(token.string.lstrip("#: "))
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and lines:
            yield "comments", start, " ".join(lines)
            lines = []


def paragraphs_of_page(text):
    """Yields (line, paragraph) of a page, without code, headings and rules of tables. A cell is a paragraph."""
    in_code, start, lines = False, 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        begins = re.match(r"^\s*([*-]|\d+\.) ", line)
        ends = in_code or not line.strip() or line.lstrip().startswith(("```", "#", "<", "|"))
        if (ends or begins) and lines:
            yield start, " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            for cell in line.strip().strip("|").split("|"):
                yield number, cell.strip()
        elif not ends:
            if not lines:
                start = number
            lines.append(re.sub(r"^\s*([*-]|\d+\.) ", "", line))


def sentences(root):
    """Yields (kind, path, line, sentence) of the whole tree."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix in (".h", ".cc"):
                text = path.read_text()
                found = [("comments", *at) for at in paragraphs_of_cpp(text)]
                found += [("texts", *at) for at in texts_of_cpp(text)]
            elif path.suffix == ".py":
                found = of_python(path.read_text())
            else:
                continue
            for kind, line, paragraph in found:
                for sentence in cut(paragraph):
                    yield kind, name, line, sentence
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.name == "bench-report.md":  # tables that a program writes
            continue
        for line, paragraph in paragraphs_of_page(path.read_text()):
            for sentence in cut(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)):
                yield "pages", str(path.relative_to(root)), line, sentence


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("root", type=pathlib.Path)
    arguments.add_argument("--list", action="store_true")
    arguments.add_argument("--draw", type=int, default=0)
    arguments.add_argument("--seed", type=int, default=None)
    given = arguments.parse_args()
    counted = {kind: [] for kind in LIMITS}
    for kind, path, line, sentence in sentences(given.root):
        counted[kind].append((path, line, sentence, why(sentence)))
    if given.draw:
        seed = given.seed if given.seed is not None else random.randrange(10**6)
        print(f"seed {seed}")
        for kind, all_of in counted.items():
            for path, line, sentence, _ in random.Random(seed).sample(all_of, min(given.draw, len(all_of))):
                print(f"{kind}: {path}:{line}: {sentence}")
        return 0
    too_many = 0
    for kind, all_of in counted.items():
        broken = [at for at in all_of if at[3]]
        if given.list:
            for path, line, sentence, rule in broken:
                print(f"{kind}: {path}:{line}: {rule}: {sentence}")
        share = 1000 * len(broken) / max(len(all_of), 1)
        too_many += share > LIMITS[kind]
        rules = {rule: sum(at[3] == rule for at in broken) for rule in ("opening", "0 means", "long", "word")}
        print(f"{kind}: {len(broken)} of {len(all_of)} sentences break a rule ({share / 10:.1f} %, at most "
              f"{LIMITS[kind] / 10} %): {rules}")
    if too_many:
        print("Mend the new ones (--list), or write them otherwise: subject first, one fact a sentence.")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
