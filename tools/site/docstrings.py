"""Docstrings as Markdown: an example with >>> becomes a block of code, and so does what is indented."""

from __future__ import annotations

import re
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    lines: list[str] = []
    is_example = False
    for line in text.splitlines():
        begins = line.lstrip().startswith(">>>")
        if begins and not is_example:
            lines += ["", "```pycon"]
            is_example = True
        elif is_example and not line.strip():
            lines += ["```", ""]
            is_example = False
        lines.append(line)
    if is_example:
        lines.append("```")
    return re.sub(r"``([^`\n]+)``", r"`\1`", "\n".join(lines))


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
