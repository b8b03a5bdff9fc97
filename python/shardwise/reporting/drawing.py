"""Pictures of a report: drawn by matplotlib, as SVG that follows the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from .page import plain, size

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
WIDTH = 360  # units; a phone shows a text of 12 units at about 10 points

STAGES = ("planning", "opening", "reading", "decoding", "transforming", "functions", "collating")
_NAMES: tuple[str, ...] = ("text", "soft", "grid", "ours", "pale", "peer", "good", "warn", "card")
_NAMES += tuple(f"s{i}" for i in range(len(STAGES) + 1))
# matplotlib draws in these colours. The page replaces each by a variable of its style.
_COLOURS = {name: f"#{number:02x}0d57" for number, name in enumerate(_NAMES, 1)}
_SETTINGS: Any = {
    "axes.edgecolor": _COLOURS["soft"],
    "axes.labelcolor": _COLOURS["soft"],
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 12,
    "grid.color": _COLOURS["grid"],
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "shardwise",
    "text.color": _COLOURS["text"],
    "text.parse_math": False,
    "xtick.color": _COLOURS["soft"],
    "xtick.labelsize": 12,
    "ytick.color": _COLOURS["soft"],
    "ytick.labelsize": 12,
}


def colour(name: str) -> str:
    """The colour in which matplotlib draws what the page shows in its colour of this name."""
    return _COLOURS[name]


def stage_colour(number: int) -> str:
    """The page's colour of a stage; after the last, that of idle time."""
    return f"s{number}"


def label(text: Any) -> str:
    """A short text of users for an axis."""
    return plain(text, 18)


class Drawer:
    """Draws the pictures of one page. Raises ModuleNotFoundError without matplotlib."""

    def __init__(self) -> None:
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ModuleNotFoundError(
                f"shardwise.report() needs matplotlib ({error}); install matplotlib: pip install "
                "'shardwise[report]'"
            ) from error
        self._matplotlib = matplotlib
        self._figure = Figure
        self._drawn = 0

    def draw(self, title: str, height: int, draw: Callable[[Any], None], columns: int = 1) -> str:
        """The SVG of a picture of this height. ``draw`` gets its axes, or several side by side."""
        self._drawn += 1
        drawn = io.BytesIO()
        with self._matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has the font
            figure = self._figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
            draw(figure.subplots(1, columns, sharey=columns > 1))
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        return _inlined(drawn.getvalue(), title, f"f{self._drawn}-")


def _inlined(svg: bytes, title: str, prefix: str) -> str:
    """The SVG for an HTML page: with the page's colours and font, and with unique names."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(svg)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for node in root.iter():
        if "id" in node.attrib:
            node.set("id", prefix + node.attrib["id"])
        if f"{{{_LINK}}}href" in node.attrib:
            node.set(f"{{{_LINK}}}href", "#" + prefix + node.attrib[f"{{{_LINK}}}href"][1:])
        for name in ("style", "clip-path", "fill", "stroke"):
            if name in node.attrib:
                node.set(name, _restyled(node.attrib[name], prefix))
    for name in ("width", "height"):
        root.attrib.pop(name)
    root.set("role", "img")
    root.set("aria-label", plain(title))
    return ElementTree.tostring(root, encoding="unicode")


def _restyled(style: str, prefix: str) -> str:
    for name, drawn in _COLOURS.items():
        style = style.replace(drawn, f"var(--{name})")
    style = style.replace("url(#", f"url(#{prefix}")
    style = re.sub(r"font-family:[^;]*(;|$)", "", style)
    return re.sub(r"font: (?:\S+ )*?([\d.]+px) [^;]*", r"font-size: \1", style)


def dots(axes: Any, x: Any, y: Any, name: str = "ours", width: float = 1.8) -> None:
    """Draws many small dots as one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    points = [(a + d, b) for a, b in zip(x, y, strict=True) for d in (0, 1e-9)]
    codes = [Path.MOVETO, Path.LINETO] * (len(points) // 2)
    if points:
        path = Path(points, codes)
        axes.add_patch(
            PathPatch(path, fill=False, edgecolor=colour(name), linewidth=width, capstyle="round")
        )


def byte_ticks(axis: Any, most: float, ticks: int) -> None:
    """Sets the ticks of an axis of bytes, from 0 to ``most``, to round numbers of one unit."""
    from matplotlib.ticker import MaxNLocator

    unit = 1.0
    while most / unit >= 1024:
        unit *= 1024
    places = [
        place
        for place in MaxNLocator(ticks).tick_values(0, most / unit)
        if place * unit <= most * 1.05
    ]
    axis.set_ticks(
        [place * unit for place in places],
        [size(place * unit).replace(".0 ", " ") for place in places],
    )
