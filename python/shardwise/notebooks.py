"""How notebooks show samples."""

from __future__ import annotations

import base64
import html
from typing import Any

from . import _core

_MOST_BYTES = 4 << 20  # limit for a picture, because the notebook's file stores it
_MOST_TEXT = 300

_PICTURES = {
    b"\xff\xd8\xff": "jpeg",
    b"\x89PNG\r\n": "png",
    b"RIFF": "webp",
}


def _picture(data: bytes) -> str:
    """Returns an <img> tag for a picture that browsers can show, and "" for other data."""
    for start, kind in _PICTURES.items():
        if data.startswith(start) and (kind != "webp" or data[8:12] == b"WEBP"):
            text = base64.b64encode(data).decode()
            return f'<img style="max-width: 24em; max-height: 24em" src="data:image/{kind};base64,{text}">'
    return ""


def _shown(sample: _core.Sample, field: str) -> str:
    kind, size = _core.field_kind(field), sample[field].nbytes
    if kind == "image" and size <= _MOST_BYTES:
        return _picture(sample.bytes(field))
    if kind not in ("integer", "text", "json"):
        return ""
    text = bytes(sample[field][: 4 * _MOST_TEXT]).decode("utf-8", "replace")
    more = " ..." if len(text) > _MOST_TEXT or size > 4 * _MOST_TEXT else ""
    return html.escape(text[:_MOST_TEXT]) + more


def _escaped(text: Any) -> str:
    return html.escape(str(text).encode("utf-8", "replace").decode())


def html_of_sample(sample: _core.Sample) -> str:
    """An HTML table of a sample's fields, with its pictures and the beginnings of its texts."""
    rows = "".join(
        f"<tr><td>{_escaped(field)}</td><td>{sample[field].nbytes} bytes</td>"
        f'<td style="text-align: left">{_shown(sample, field)}</td></tr>'
        for field in sample.keys()  # noqa: SIM118 (a Sample is no dict)
    )
    place = f"{_escaped(sample.key)}, sample {sample.number} of {_escaped(sample.shard_path)}"
    return f"<table><caption>{place}</caption>{rows}</table>"
