"""The HTML page of a report: one file with its styles and pictures, without scripts."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
from typing import Any

from ..errors import InvalidArgument, Io, NotFound

BEGIN = '<!doctype html>\n<html lang="en">\n<meta name="generator" content="shardwise report">\n'

_STYLE = """
:root{color-scheme:light dark;--back:#f6f8fa;--card:#fff;--edge:#d0d7de;--text:#1f2328;--soft:#59636e;--grid:#d8dee4;
--ours:#0969da;--pale:#a8cdf5;--peer:#bc4c00;--good:#1a7f37;--warn:#9a6700;--s0:#8250df;--s1:#bf3989;--s2:#0969da;
--s3:#1a7f37;--s4:#bf8700;--s5:#cf222e;--s6:#1b7c83;--s7:#afb8c1}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--card:#161b22;--edge:#30363d;--text:#e6edf3;--soft:#9198a1;
--grid:#30363d;--ours:#4493f8;--pale:#1f4a80;--peer:#f0883e;--good:#3fb950;--warn:#d29922;--s0:#ab7df8;--s1:#db61a2;
--s2:#4493f8;--s3:#3fb950;--s4:#d29922;--s5:#f85149;--s6:#39c5cf;--s7:#6e7681}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2rem 0 .25rem}h3{font-size:1rem;margin:0 0 .25rem}
p{margin:.25rem 0 .75rem;color:var(--soft);overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:8px;margin:.75rem 0}
dl div,.card{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:8px 12px;min-width:0}
dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,430px),1fr));gap:12px}
.card{margin:0;padding:12px}.card p{font-size:.9rem;margin-bottom:.5rem}
.wide{grid-column:1/-1}.scroll{overflow-x:auto}
svg{display:block;width:100%;height:auto;max-width:560px}.key{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.85rem}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em;vertical-align:-.05em}
table{border-collapse:collapse;width:100%;font-size:.9rem}th{color:var(--soft);font-weight:400;text-align:right}
th,td{padding:3px 8px;border-bottom:1px solid var(--grid)}td{text-align:right;font-variant-numeric:tabular-nums}
td,th{white-space:nowrap}
td:first-child,th:first-child{white-space:normal;text-align:left;overflow-wrap:anywhere;min-width:6em;padding-left:0}
tr:last-child td{border-bottom:0}.tiles{display:grid;gap:12px;font-size:.85rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,150px),1fr))}.tiles div{min-width:0;overflow-wrap:anywhere}img{max-width:112px;max-height:112px;display:block;border-radius:4px}
@media (max-width:480px){main{padding:10px}th,td{padding:3px 4px}table{font-size:.82rem}}
footer{margin:2rem 0 1rem;font-size:.85rem;color:var(--soft)}
"""
# No address can be loaded, and no script runs, even if a name in an index were HTML.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def plain(text: Any, most: int = 200) -> str:
    """A text of one line without control characters, shortened to ``most`` characters."""
    shown = str(text).encode("utf-8", "replace").decode()
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    return shown if len(shown) <= most else shown[: most // 2] + "..." + shown[-(most // 2) :]


def escaped(text: Any, most: int = 200) -> str:
    """The text for HTML, as an element or within quotes."""
    return html.escape(plain(text, most))


def count(number: int) -> str:
    """A number with separators of thousands."""
    return f"{number:,}"


def size(number: float) -> str:
    """A number of bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if number < 1024 or unit == "PiB":
            return f"{number:,.0f} B" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError


def seconds(time: float) -> str:
    """A duration with a unit."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if time * factor < 1000:
            return f"{time * factor:,.3g} {unit}"
    return f"{time:,.1f} s"


def table(head: list[str], rows: list[list[tuple[Any, str]]], name: str) -> str:
    """A table. Each cell has a value, which programs can read, and HTML."""
    top = "".join(f"<th>{escaped(title)}</th>" for title in head)
    body = "".join(
        "<tr>"
        + "".join(f'<td data-value="{escaped(value, 1000)}">{shown}</td>' for value, shown in row)
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table id="{name}"><tr>{top}</tr>{body}</table></div>'


def cell(value: Any, shown: str | None = None) -> tuple[Any, str]:
    """A cell of a table: a value, and its text if that differs."""
    return value, escaped(value if shown is None else shown)


def key(colours: list[tuple[str, str]]) -> str:
    """The key of a picture: colours by name."""
    names = "".join(
        f'<span><i style="background:var(--{colour})"></i>{escaped(name)}</span>'
        for name, colour in colours
    )
    return f'<div class="key">{names}</div>'


def card(title: str, words: str, *parts: str, wide: bool = False) -> str:
    """A part of the page: a title, a sentence about it, and pictures or tables in HTML."""
    kind = "card wide" if wide else "card"
    said = f"<p>{escaped(words, 1000)}</p>" if words else ""
    return f'<figure class="{kind}"><h3>{escaped(title)}</h3>{said}{"".join(parts)}</figure>\n'


def tile(title: str, value: Any, lines: list[str], picture: str = "") -> str:
    """A small part of a card: a picture in HTML, a title and lines of text."""
    text = "".join(f"<br>{escaped(line)}" for line in lines)
    return f'<div data-value="{escaped(value)}">{picture}<b>{escaped(title)}</b>{text}</div>'


def section(title: str, words: str, cards: list[str]) -> str:
    """A section with its cards."""
    said = f"<p>{escaped(words, 1000)}</p>" if words else ""
    return f'<h2>{escaped(title)}</h2>{said}<div class="cards">{"".join(cards)}</div>\n'


def facts(values: list[tuple[str, Any, str]]) -> str:
    """Figures with their names: name, value, and text of each."""
    parts = "".join(
        f'<div><dt>{escaped(name)}</dt><dd data-value="{escaped(value)}">{escaped(shown)}</dd></div>'
        for name, value, shown in values
    )
    return f"<dl>{parts}</dl>"


def document(title: str, body: str, version: str) -> str:
    """The whole page."""
    return (
        f'{BEGIN}<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n<main><h1>{escaped(title)}</h1>\n"
        f"{body}<footer>Written by shardwise {escaped(version)}.</footer></main>\n</html>\n"
    )


def require_output(path: str) -> None:
    """Raises NotFound for a missing folder, and InvalidArgument for a file that is not a report."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise NotFound(f"no such folder: {folder!r}; make the folder of the report first")
    if not os.path.lexists(path):
        return
    advice = "choose another name for the report"
    if not os.path.isfile(path):
        raise InvalidArgument(f"not a file: {path!r}; {advice}")
    with open(path, "rb") as file:
        begin = file.read(len(BEGIN))
    if begin and begin != BEGIN.encode():
        raise InvalidArgument(f"the file exists and is not a report: {path!r}; {advice}")


def write(path: str, text: str) -> None:
    """Writes the file completely or not at all."""
    part = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    try:
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        raise Io(
            f"cannot write the report: {path!r} ({error.strerror}); check the folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # os.replace() has removed it
            os.unlink(part)
