"""Turns docstrings into Markdown: examples with >>> become code blocks, and parameters become lists."""

from __future__ import annotations

import re
from typing import Any

import griffe


def with_code(text: str) -> str:
    """Encloses each example in fences. An example ends at an empty line."""
    lines: list[str] = []
    is_example = False
    for line in text.splitlines():
        if line.lstrip().startswith(">>>") and not is_example:
            lines += ["", "```pycon"]
            is_example = True
        elif is_example and not line.strip():
            lines += ["```", ""]
            is_example = False
        lines.append(line)
    if is_example:
        lines.append("```")
    return re.sub(r"``([^`\n]+)``", r"`\1`", "\n".join(lines))


LABELS = ("Cost", "Errors", "Memory", "Pickling", "Threads", "Type")


def with_lists(text: str, names: list[str]) -> str:
    """Turns parameters and labelled lines, `name: description. Cost: ...`, into a list."""
    known = "|".join(map(re.escape, [*names, *LABELS]))
    begin = re.compile(r"(?:^|(?<=[.;)] )|(?<=\n))(" + known + r"): ")
    paragraphs = text.split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        if "```" in paragraph or ">>>" in paragraph or paragraph.startswith("    "):
            continue
        before, *said = begin.split(re.sub(r"\s*\n\s*", "\n", paragraph))
        if said:
            items = [
                f"- {f'**{name}**' if name in LABELS else f'`{name}`'}: {' '.join(what.split())}"
                for name, what in zip(said[::2], said[1::2])
            ]
            paragraphs[i] = "\n\n".join(filter(None, [before.strip(), "\n".join(items)]))
    return "\n\n".join(paragraphs)


def parameters_of(function: Any) -> list[str]:
    return [
        parameter.name
        for parameter in getattr(function, "parameters", [])
        if parameter.name != "self"
    ]


class Docstrings(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        self.change(pkg)

    def change(self, found: Any) -> None:
        if found.docstring is not None:
            function = found.members.get("__init__") if found.is_class else found
            text = with_lists(found.docstring.value, parameters_of(function))
            found.docstring.value = with_code(text)
        for member in found.members.values():
            if not member.is_alias:
                self.change(member)
