"""Patterns of names in braces, as the package braceexpand expands them."""

from __future__ import annotations

import re

from .errors import InvalidArgument

_MAX_NAMES = 1_000_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([a-zA-Z])\.\.([a-zA-Z])")


def _parts_of_brace(text: str) -> list[str] | None:
    """Returns the choices of a brace: the texts between its own commas, or the members of a range.
    Returns None if it has neither commas nor a range; the brace is then literal text."""
    found = _RANGE.fullmatch(text)
    if found is not None:
        first, last, step, first_letter, last_letter = found.groups()
        if first is None:
            a, b = ord(first_letter), ord(last_letter)
            return [chr(i) for i in range(a, b + (1 if a <= b else -1), 1 if a <= b else -1)]
        pad = max(len(first), len(last)) if _is_padded(first) or _is_padded(last) else 0
        a, b = int(first), int(last)
        by = max(1, abs(int(step))) if step else 1
        numbers = range(a, b + 1, by) if a <= b else range(a, b - 1, -by)
        _require_few(len(numbers), f"{{{text}}}")
        return [f"{number:0{pad}d}" for number in numbers]
    pieces, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            pieces.append(text[begin:place])
            begin = place + 1
    return [*pieces, text[begin:]] if pieces else None


def _is_padded(number: str) -> bool:
    return len(number.lstrip("-")) > 1 and number.lstrip("-").startswith("0")


def _require_few(count: int, pattern: str) -> None:
    if count > _MAX_NAMES:
        raise InvalidArgument(
            f"{pattern:.200} expands to {count:,} names, more than 1,000,000; give a list of the "
            "names instead of the pattern"
        )


def expand_braces(text: str) -> list[str]:
    """The names that a pattern expands to: "a-{000..012}.tar", "{train,val}.tar", also nested, as
    in a shell. Raises InvalidArgument for over 1,000,000 names."""
    begin = text.find("{")
    while begin >= 0:
        depth = 0
        for end in range(begin, len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                break
        parts = _parts_of_brace(text[begin + 1 : end]) if depth == 0 else None
        if parts is not None:
            ends = expand_braces(text[end + 1 :])
            heads = [text[:begin] + one for part in parts for one in expand_braces(part)]
            _require_few(len(heads) * len(ends), text)
            return [head + tail for head in heads for tail in ends]
        begin = text.find("{", begin + 1)
    return [text]
