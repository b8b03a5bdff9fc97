"""shardwise.report() and python -m shardwise report."""

from __future__ import annotations

import errno
import gzip
import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import needs, write_shard, write_shards

import shardwise
from shardwise import Loader, Order, columns, errors

needs("matplotlib")

SVG = "{http://www.w3.org/2000/svg}"


class Page(html.parser.HTMLParser):
    """A page as a browser reads it: its elements, texts and tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.facts: list[str] = []
        self.words: list[str] = []
        self._table: list[list[str]] = []
        self.feed(self.text)
        self.svgs = [
            ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", self.text, re.S)
        ]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.attributes |= given.keys()
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag == "table":
            self._table = self.tables.setdefault(given["id"] or "", [])
        elif tag == "tr":
            self._table.append([])
        elif tag == "td":
            self._table[-1].append(given["data-value"] or "")
        elif tag == "dd":
            self.facts.append(given["data-value"] or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def rows(self, table: str) -> dict[str, list[str]]:
        """The rows of a table by their first cell."""
        return {row[0]: row[1:] for row in self.tables[table] if row}


def page_of(data: Any, folder: Path, **options: Any) -> Page:
    return Page(Path(shardwise.report(data, folder / "report.html", **options)))


def require_sound(page: Page) -> None:
    """Checks that the page runs no script and fetches nothing, and that the ids in its pictures are
    unique. Each reference must be to an existing id."""
    assert page.tags & {"script", "iframe", "link", "object", "foreignobject", "b", "i", "x"} <= {
        "b",
        "i",
    }
    assert not [name for name in page.attributes if name.startswith("on")]
    assert len(page.ids) == len(set(page.ids))
    references = re.findall(r'(?:url\(#|xlink:href="#)([^")]+)', page.text)
    assert references and set(references) <= set(page.ids)
    addresses = set(re.findall(r'(?:src|href)="([^"#]{1,30})', page.text))
    assert all(one.startswith("data:image/png;base64") for one in addresses)
    assert not re.findall(r"#[0-9a-f]{2}0d57", page.text)
    for svg in page.svgs:
        assert svg.get("viewBox") and svg.get("aria-label") and "width" not in svg.attrib


def test_the_figures_are_those_of_the_library(ds: shardwise.Dataset, tmp_path: Path) -> None:
    order = Order("sharded", seed=5, window=2)
    page = page_of(ds, tmp_path, order=order, world_size=2, nodes=2, batch_size=8, classes="cls")
    require_sound(page)
    assert page.facts[:2] == ["103", "4"]
    assert ds.fingerprint in page.facts
    assert page.rows("samples-by-shard")["largest"] == ["40", "train-000000.tar"]
    sizes = [shard.size_bytes for shard in ds.shards]
    assert page.rows("bytes-by-shard")["smallest"][0] == str(min(sizes))
    for field in ds.info.fields:
        found = page.rows("fields")[field.name]
        assert found[:2] == [str(field.num_members), str(field.size_bytes)]
        assert found[3] == str(ds.sizes(field.name).max())
    plan = shardwise.plan(
        ds, order, nodes=2, cache_bytes=sum(sizes) // 2, world_size=2, batch_size=8
    )
    assert page.rows("thresholds")["each shard once per epoch"][0] == str(
        plan.bytes_for_once_an_epoch
    )
    assert page.rows("thresholds")["nothing twice"][0] == str(plan.bytes_for_once)
    half = page.rows("fetched")[str(plan.total_bytes // 2)]
    for rule, shown in zip(("lru", "next_use"), half, strict=True):
        fetched = [getattr(epoch, rule).bytes_fetched for epoch in plan.epochs[1:]]
        assert float(shown) == sum(fetched) / 2
    steps: dict[tuple[int, int], set[int]] = {}
    for step in range(7):
        for one in shardwise.explain(ds, order, step=step, world_size=2, batch_size=8):
            steps.setdefault((step, one.rank), set()).add(one.sample)
    seen = [len({ds.column("cls", [n])[0] for n in steps[step, step % 2]}) for step in range(7)]
    shown = page.rows("classes-of-a-batch")["this order"]
    assert [float(value) for value in shown] == [min(seen), sum(seen) / 7, max(seen)]


def test_the_picture_of_the_order_has_its_positions(ds: shardwise.Dataset, tmp_path: Path) -> None:
    page = page_of(ds, tmp_path, order=Order("sequential"))
    svg = next(one for one in page.svgs if "against" in str(one.get("aria-label")))
    paths = [path.get("d", "") for path in svg.iter(f"{SVG}path")]
    this, full = sorted(
        (path for path in paths if path.count("M") == 103), key=lambda d: d.count("L")
    )
    dots = [
        [tuple(map(float, xy)) for xy in re.findall(r"M ([\d.]+) ([\d.]+)", d)]
        for d in (this, full)
    ]
    assert dots[0] == sorted(dots[0], key=lambda xy: (xy[0], -xy[1]))
    straight = [sorted(ys, reverse=True) == ys for ys in ([y for _, y in one] for one in dots)]
    assert sorted(straight) == [False, True]  # in sequence the index rises with the epoch


def test_equal_inputs_give_equal_bytes(ds: shardwise.Dataset, tmp_path: Path) -> None:
    first = page_of(ds, tmp_path).text
    assert page_of(ds, tmp_path).text == first  # the earlier report was replaced
    assert os.listdir(tmp_path).count("report.html") == 1


def test_a_histogram_shows_many_shards(tmp_path: Path) -> None:
    write_shards(tmp_path / "s", [1 + i % 3 for i in range(90)])
    shardwise.index(tmp_path / "a.idx", tmp_path / "s", threads=0)
    page = page_of(tmp_path / "a.idx", tmp_path)
    require_sound(page)
    assert "90 shards, by size" in page.words
    assert page.rows("samples-by-shard")["median"][0] == "2"


def test_one_sample_is_enough(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("a", {"txt": b""})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    require_sound(page_of(tmp_path / "a.idx", tmp_path, classes="txt"))


def test_a_cache_is_planned_for_expanded_shards(tmp_path: Path, shards: Path) -> None:
    """The files are compressed, but caches store and count plain tars."""
    for tar in sorted(shards.glob("*.tar")):
        (tmp_path / f"{tar.name}.gz").write_bytes(gzip.compress(tar.read_bytes()))
    shardwise.index(tmp_path / "gz.idx", sorted(tmp_path.glob("*.gz")), threads=0)
    page = page_of(tmp_path / "gz.idx", tmp_path, order=Order("sharded"))
    assert page.rows("fetched")[page.rows("thresholds")["nothing twice"][0]] == ["0.0", "0.0"]


BAD = "<script>alert(1)</script>'\"><x onload=y>&amp;$\\frac{"


def test_an_epoch_without_batches_is_shown(ds: shardwise.Dataset, tmp_path: Path) -> None:
    page = page_of(ds, tmp_path, order=Order("chunked", tail="drop"), world_size=200)
    assert any("no batches" in words for words in page.words)


def test_long_classes_and_empty_fields_are_counted(tmp_path: Path) -> None:
    samples = [(f"{i}", {"txt": b"x" * 64 + b"%d" % i, "no.txt": b""}) for i in range(3)]
    write_shard(tmp_path / "a.tar", samples)
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    page = page_of(tmp_path / "a.idx", tmp_path, classes="txt")
    assert page.rows("classes-of-a-batch")["this order"] == ["3", "3.0", "3"]
    assert [row[1] for row in page.tables["classes"][1:]] == ["1", "1", "1"]
    assert page.rows("fields")["no.txt"] == ["3", "0", "0", "0"]


def test_a_join_is_named(ds: shardwise.Dataset, tmp_path: Path) -> None:
    page = page_of(ds.join(ds[:9], suffix="b"), tmp_path)
    assert page.facts[0] == "9"
    assert any("A join. Shards" in words for words in page.words)


def test_a_style_of_the_user_does_not_change_the_page(
    ds: shardwise.Dataset, tmp_path: Path
) -> None:
    matplotlib = needs("matplotlib")
    first = page_of(ds, tmp_path).text
    style = {"savefig.facecolor": "black", "lines.linestyle": "--", "savefig.bbox": "tight"}
    with matplotlib.rc_context(style):
        assert page_of(ds, tmp_path).text == first
        assert matplotlib.rcParams["lines.linestyle"] == "--"


def test_names_from_shards_are_text(tmp_path: Path) -> None:
    samples = [
        (
            f"{BAD}{i}",
            {"cls": (BAD + "\x01\x1b" + "x" * i).encode(), "y$<b>": b"1", "$\\frac{$": b"1"},
        )
        for i in range(3)
    ]
    write_shard(tmp_path / "<i onclick=z>$.tar", samples)
    shardwise.index(
        tmp_path / "<u>.idx", tmp_path / "<i onclick=z>$.tar", columns=["cls"], threads=0
    )
    slow = {"name": "load samples", "ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    slow["args"] = {"samples": 1, "first_sample": 2, "decoding_us": 5}
    (tmp_path / "t.json").write_text(json.dumps([slow]))
    stats = {"decoding": 1.0, "elapsed": 2.0, "waited": 1, "slowest_sample": BAD}
    for options in ({"traces": tmp_path / "t.json"}, {"stats": stats}):
        page = page_of(tmp_path / "<u>.idx", tmp_path, **options)
        require_sound(page)
        assert not {"x", "u"} & page.tags
        assert any("<script>alert(1)" in words for words in page.words)
        assert "\x01" not in page.text


def test_a_run_is_shown_by_rank(ds: shardwise.Dataset, tmp_path: Path) -> None:
    files, stats = [], []
    for rank, part in enumerate((ds[:52], ds[52:])):
        loader = Loader(part, columns=[columns.integer("cls")], batch_size=8)
        files.append(tmp_path / f"{rank}.json")
        with loader.trace(files[-1]):
            assert sum(len(batch) for batch in loader) == (52, 51)[rank]
        stats.append(loader.stats())
    page = page_of(ds, tmp_path, traces=files)
    require_sound(page)
    assert [page.rows("ranks")[str(rank)][0] for rank in range(2)] == ["52", "51"]
    waits = [
        sum(e["dur"] for e in json.loads(file.read_text()) if e["name"] == "wait for batch")
        for file in files
    ]
    assert [float(page.rows("ranks")[str(rank)][2]) for rank in range(2)] == [
        pytest.approx(wait / 1e6) for wait in waits
    ]
    (tmp_path / "s.json").write_text(json.dumps(stats[1]._asdict()))
    page = page_of(ds, tmp_path, stats=[stats[0], tmp_path / "s.json"])
    for rank in range(2):
        expected = [stats[rank].samples, stats[rank].elapsed, stats[rank].waited]
        assert [float(value) for value in page.rows("ranks")[str(rank)][:3]] == expected


def test_pictures_of_slow_samples_are_shown_if_asked_for(tmp_path: Path) -> None:
    import io

    image = needs("PIL.Image")
    data = io.BytesIO()
    image.new("RGB", (400, 300), (255, 0, 0)).save(data, "PNG")
    write_shard(tmp_path / "a.tar", [("a", {"png": data.getvalue()}), ("b", {"png": b"broken"})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    event = {"name": "load samples", "ph": "X", "ts": 0, "dur": 5}
    events = [event | {"args": {"samples": 1, "first_sample": n}} for n in range(2)]
    (tmp_path / "t.json").write_text(json.dumps(events))
    without = page_of(tmp_path / "a.idx", tmp_path, traces=tmp_path / "t.json")
    assert "img" not in without.tags
    page = page_of(tmp_path / "a.idx", tmp_path, traces=tmp_path / "t.json", pictures=True)
    require_sound(page)
    assert page.text.count("<img") == 1


def test_a_picture_of_one_row_keeps_its_size(tmp_path: Path) -> None:
    import base64
    import io

    image = needs("PIL.Image")
    data = io.BytesIO()
    image.new("RGB", (50, 1), (1, 2, 3)).save(data, "PNG")
    write_shard(tmp_path / "a.tar", [("a", {"png": data.getvalue()})])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    event = {"name": "load samples", "ph": "X", "ts": 0, "dur": 5}
    events = [event | {"args": {"samples": 1, "first_sample": 0}}]
    (tmp_path / "t.json").write_text(json.dumps(events))
    page = page_of(tmp_path / "a.idx", tmp_path, traces=tmp_path / "t.json", pictures=True)
    shown = re.findall('base64,([^"]+)', page.text)
    picture = image.open(io.BytesIO(base64.b64decode(shown[0])))
    assert (picture.mode, picture.size, picture.getpixel((0, 0))) == ("RGB", (50, 1), (1, 2, 3))


def test_an_invalid_time_of_a_slow_sample_is_left_out(
    ds: shardwise.Dataset, tmp_path: Path
) -> None:
    times = [10**400, float("nan"), float("inf"), -1]
    stats = [{"reading": 1, "slowest_sample": "k", "slowest_time": time} for time in times]
    page = page_of(ds, tmp_path, stats=stats)
    assert page.rows("slowest") == {str(rank): ["k"] for rank in range(4)}


def test_what_cannot_be_shown_is_an_error(
    tmp_path: Path, index: Path, ds: shardwise.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.json").write_text("[{")
    (tmp_path / "text.html").write_text("mine")
    (tmp_path / "far.json").write_text(
        '[{"ph":"X","name":"load samples","ts":0,"dur":1,"args":{"samples":1,"first_sample":103}}]'
    )
    event = {"ph": "X", "name": "load samples", "ts": 0}
    events = [
        event | {"dur": 10 - n // 100, "args": {"samples": 1, "first_sample": n}}
        for n in (*range(9), 103)
    ]
    (tmp_path / "fast.json").write_text(json.dumps(events))
    damaged = tmp_path / "damaged.idx"
    damaged.write_bytes(index.read_bytes()[:100])
    cases: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (errors.NotFound, "no such file", tmp_path / "no.idx", {}),
        (errors.CorruptIndex, "damaged.idx", damaged, {}),
        (errors.InvalidArgument, "no samples", ds[:0], {}),
        (errors.InvalidArgument, "no column and no field", ds, {"classes": "clas"}),
        (errors.InvalidArgument, "batch_size=0", ds, {"batch_size": 0}),
        (errors.InvalidArgument, "nodes", ds, {"nodes": 3, "world_size": 2}),
        (errors.NotFound, "no such file", ds, {"traces": tmp_path / "no.json"}),
        (errors.BadField, "not JSON", ds, {"traces": tmp_path / "bad.json"}),
        (errors.BadField, "no events", ds, {"traces": [tmp_path / "empty.json"]}),
        (errors.InvalidArgument, "no times of stages", ds, {"stats": {"samples": 1}}),
        (errors.Mismatch, "sample 103", ds, {"traces": tmp_path / "far.json"}),
        (errors.Mismatch, "sample 103", ds, {"traces": tmp_path / "fast.json"}),  # not slow
        (errors.Io, "cannot read", ds, {"traces": tmp_path}),
        (errors.InvalidArgument, "not valid: stats=5", ds, {"stats": 5}),
        (errors.InvalidArgument, "not valid: data=", shardwise.mix([ds, ds]), {}),
        (TypeError, "did you mean 'classes'", ds, {"clases": "cls"}),
    ]
    (tmp_path / "empty.json").write_text("[]")
    before = sorted(os.listdir(tmp_path))
    for kind, text, data, options in cases:
        with pytest.raises(kind, match=text):
            shardwise.report(data, tmp_path / "report.html", **options)
    for kind, text, output in (
        (errors.NotFound, "no such folder", tmp_path / "no" / "report.html"),
        (errors.InvalidArgument, "not a report", tmp_path / "text.html"),
        (errors.InvalidArgument, "not a report", index),
        (errors.InvalidArgument, "not a file", tmp_path),
    ):
        with pytest.raises(kind, match=text):
            shardwise.report(ds, output)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'shardwise\[report\]'"):
        shardwise.report(ds, tmp_path / "report.html")
    assert sorted(os.listdir(tmp_path)) == before


def test_an_interrupted_report_leaves_no_file(
    ds: shardwise.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page_of(ds, tmp_path).text

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    before = sorted(os.listdir(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shardwise.report(ds, tmp_path / "report.html", batch_size=2)
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "report.html").read_text() == first


def test_another_file_is_not_overwritten_even_if_it_is_new(
    ds: shardwise.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardwise.reporting import contents

    made = contents.contents

    def meanwhile(*given: Any) -> str:
        (tmp_path / "report.html").write_text("mine")
        return made(*given)

    monkeypatch.setattr(contents, "contents", meanwhile)
    with pytest.raises(errors.InvalidArgument, match="not a report"):
        shardwise.report(ds, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == "mine"


def test_a_replaced_report_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    from shardwise.reporting.page import BEGIN, write

    name = tmp_path / ("r" * 250 + ".html")  # the longest name
    write(str(name), BEGIN)
    name.chmod(0o600)
    (tmp_path / "link.html").symlink_to(name.name)
    write(str(tmp_path / "link.html"), BEGIN + "new")
    assert name.read_text() == BEGIN + "new" and name.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link.html").is_symlink()
    assert len(os.listdir(tmp_path)) == 2


def test_a_folder_that_takes_no_files_is_an_early_error(
    ds: shardwise.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(errors.Io, match="cannot write into the folder"):
        shardwise.report(ds, tmp_path / "report.html")


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwise.reporting import page

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(errors.NoSpace, match="No space left"):
        page.write(str(tmp_path / "report.html"), page.BEGIN)
    assert os.listdir(tmp_path) == []


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shardwise", "report", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_the_command_takes_the_options_of_an_order(index: Path, tmp_path: Path) -> None:
    done = command(
        tmp_path, index.name, "--sampler", "sharded", "--window", "3", "--seed", "7", "--streams", "2",
        "--world", "2", "--batch", "4", "--where", "cls < 50",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "report.html\n"), done.stderr
    page = Page(tmp_path / "report.html")
    assert page.facts[0] == "50"
    words = " ".join(page.words)
    assert "sharded, seed=7, streams=2" in words and "window=3" in words
    assert command(tmp_path, index.name, "--no-shuffle").returncode == 0
    assert "sequential, seed=0" in " ".join(Page(tmp_path / "report.html").words)
    shown = command(tmp_path, "--help").stdout
    assert all(
        option in shown for option in ("--seed", "--no-shuffle", "--tail", "--balance-bytes")
    )


def test_the_command_says_what_failed(tmp_path: Path) -> None:
    done = command(tmp_path, "no.idx")
    assert done.returncode == 1
    assert re.fullmatch(r"shardwise: error: .*no\.idx.*\n", done.stderr)
    assert os.listdir(tmp_path) == []


def test_an_output_that_takes_nothing_is_an_error_of_one_line(index: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shardwise", "report", index.name],
            cwd=index.parent,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert re.fullmatch(r"shardwise: error: .*No space left.*\n", done.stderr), done.stderr


def test_importing_shardwise_imports_no_matplotlib() -> None:
    code = "import sys, shardwise; shardwise.report; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
