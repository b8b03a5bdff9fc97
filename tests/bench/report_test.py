"""Tests bench/sections.py, bench/report.py, and the server and tables of bench/python."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "python")]

import report
from sections import SECTIONS, Section
from server import Server
from tables import Table

ABOUT = {
    "date": "2026-01-05T10:00+00:00",
    "commit": "0123456789ab",
    "machine": {"CPU": "a CPU, 2 cores"},
    "versions": {"webdataset": "1.0.2"},
}
RAN = {
    "date": "2026-01-05T10:01+00:00",
    "load_before": [0.5, 0.25, 0.125],
    "load_after": [2, 1, 0.5],
    "seconds": 61.4,
    "tables": [],
    "text": "",
}


def programs() -> set[str]:
    """Returns the benches: sources of C++, and scripts outside of packages."""
    found = {str(path.relative_to(BENCH)) for path in BENCH.rglob("*_bench.cc")}
    found |= {str(path.relative_to(BENCH)) for path in BENCH.rglob("*.sh")}
    for path in BENCH.rglob("*.py"):
        is_program = 'if __name__ == "__main__":' in path.read_text()
        if is_program and not (path.parent / "__init__.py").exists():
            found.add(str(path.relative_to(BENCH)))
    return found - {"report.py"}


def canned(row: str, family: int, times: list[float], **more: object) -> list[dict[str, object]]:
    """Returns the repetitions of a row, and an aggregate, as Google Benchmark writes them."""
    rows = [
        {
            "run_name": row,
            "run_type": "iteration",
            "family_index": family,
            "per_family_instance_index": 0,
            "repetition_index": number,
            "iterations": 10,
            "real_time": time,
            "cpu_time": time,
            "time_unit": "us",
            **more,
        }
        for number, time in enumerate(times)
    ]
    return [*rows, rows[0] | {"run_type": "aggregate", "aggregate_name": "mean"}]


class SectionsTest(unittest.TestCase):
    def test_each_bench_has_a_section(self) -> None:
        self.assertEqual(programs(), {section.source for section in SECTIONS})

    def test_names_are_unique(self) -> None:
        self.assertEqual(len(SECTIONS), len({section.name for section in SECTIONS}))

    def test_programs_are_those_that_cmake_builds(self) -> None:
        built = {}
        for path in BENCH.glob("*/CMakeLists.txt"):
            room = path.parent.name
            targets = re.findall(r"shardwise_bench\((\w+) SOURCES (\w+\.cc)", path.read_text())
            built |= {f"{room}/{source}": f"{room}/{name}" for name, source in targets}
        named = {
            section.source: section.commands[0][0].removeprefix("{build}/bench/")
            for section in SECTIONS
            if section.kind == "google"
        }
        self.assertEqual(built, named)

    def test_limits_are_found_by_row(self) -> None:
        of = {section.name: section for section in SECTIONS}
        for name, row, limit in (
            ("views", "BM_TinyView_Dataset/threads:2", "BM_TinyView_Bare/threads:2"),
            ("loader", "BM_Image_LoaderLabel/threads:1", "BM_Image_Memcpy"),
            ("cold", "BM_Cold1MB_Random_Loader/threads:4", "BM_Cold1MB_Random_Pread/in_flight:32"),
            ("jpegs", "BM_JpegProgressive_Ours", "BM_JpegProgressive_Bare"),
            ("jpegs", "BM_JpegScale_Ours/scale:3", "BM_JpegScale_Bare/scale:3"),
            ("video", "BM_EveryKth/width:640/k:50", "BM_Limit_Rgb/width:640"),
            ("cache", "BM_ShardCache_FetchThatFits/shards:10", "BM_Bare_Fetch/shards:10"),
            ("image-loader", "BM_FirstBatch/threads:0", None),
        ):
            self.assertEqual(of[name].limit_of(row), limit, row)


class TablesTest(unittest.TestCase):
    def test_google_rows_become_times_per_item_beside_their_limit(self) -> None:
        section = next(section for section in SECTIONS if section.name == "loader")
        # 100 items in 5 us, and in 10 us, of which the middle round has other ratios
        limit = canned("BM_Tiny_Memcpy/real_time", 0, [5, 5, 8])
        ours = canned("BM_Tiny_Loader/threads:1/real_time", 2, [10, 20, 12], bytes_per_second=3e6)
        for row in limit + ours:
            row["items_per_second"] = 100 / (row["real_time"] * 1e-6)
        errors = {"error_occurred": True, "error_message": "bytes are missing"}
        broken = canned("BM_Tiny_DataLoop/real_time", 1, [0], **errors)
        (table,) = report.google_tables(section, {"benchmarks": [*ours, *limit, *broken]})
        self.assertEqual(
            report.markdown(table)[2:-1],
            [
                "| BM_Tiny_Memcpy | 50 ns | 50 ns to 65 ns | 1 | CPU 50 ns |",
                "| BM_Tiny_Loader/threads:1 | 120 ns | 110 ns to 160 ns | 2 x BM_Tiny_Memcpy | "
                "CPU 120 ns; MB/s 3 |",
                "| BM_Tiny_DataLoop |  |  |  | failed: bytes are missing |",
            ],
        )

    def test_ratios_are_medians_round_by_round(self) -> None:
        table = Table("an epoch", "samples/s")
        for ours, theirs in ((100, 50), (400, 100), (90, 60)):
            table.add("shardwise", ours)
            table.add("peer", theirs)
        self.assertEqual(table.ratio("peer"), 0.5)
        table.note("absent", "cannot be imported")
        again = Table.from_json(json.loads(json.dumps(table.as_json())))
        self.assertEqual(
            report.markdown(again)[2:-1],
            [
                "| | median | quartiles | ratio | |",
                "|---|---|---|---|---|",
                "| shardwise | 100 samples/s | 95 samples/s to 250 samples/s | 1 |  |",
                "| peer | 60 samples/s | 55 samples/s to 80 samples/s | 0.5 x shardwise |  |",
                "| absent |  |  |  | cannot be imported |",
            ],
        )


class ReportTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name).resolve()

    def runner(self, *words: str) -> report.Runner:
        return report.Runner(report.options_of(["--build", str(self.build), *words]))

    def section(self, code: str, kind: str = "text", **more: object) -> Section:
        command = ("{python}", "-c", code, "{json}")
        return Section("some", "python/some.py", "some rows", (command,), kind=kind, **more)

    def test_a_report_has_machine_load_tables_and_texts(self) -> None:
        table = Table("an epoch", "/s")
        table.add("shardwise", 1234.4)
        results = [
            (self.section("", kind="tables"), RAN | {"tables": [table.as_json()]}),
            (self.section(""), RAN | {"text": "curl 0.5 s\n"}),
            (self.section(""), {"left_out": "no NVIDIA GPU"}),
        ]
        text = report.report(ABOUT, results, quick=False, rounds=5)
        for line in (
            "2026-01-05T10:00+00:00, commit 0123456789ab, 5 rounds.",
            "| CPU | a CPU, 2 cores |",
            "| webdataset | 1.0.2 |",
            "| some | 61 s |",
            "| some | left out: no NVIDIA GPU |",
            "`bench/python/some.py`, 2026-01-05T10:01+00:00, load 0.5, 0.2, 0.1 before, "
            "2.0, 1.0, 0.5 after.",
            "| shardwise | 1,234 /s |  | 1 |  |",
            "curl 0.5 s",
            "Left out: no NVIDIA GPU.",
        ):
            self.assertIn(line, text.split("\n"))
        self.assertNotIn("--quick", text)
        quick = report.report(ABOUT, results, quick=True, rounds=1)
        self.assertIn("Its figures mean nothing.", quick)

    def test_a_command_writes_tables_that_are_kept_for_the_commit(self) -> None:
        table = Table("an epoch", "/s")
        table.add("shardwise", 2)
        written = self.build / "written.json"
        written.write_text(json.dumps({"tables": [table.as_json()]}))
        code = f"import shutil, sys; shutil.copy('{written}', sys.argv[1])"
        section = self.section(code, kind="tables")
        runner = self.runner("--rounds", "3")
        result = runner.result_of(section)
        self.assertEqual(result["tables"], [table.as_json()])
        failing = self.section("sys.exit(1)", kind="tables")
        self.assertEqual(self.runner("--rounds", "3").result_of(failing)["date"], result["date"])
        for words in (["--rounds=4"], ["--rounds=3", "--quick"], ["--rounds=3", "--again"]):
            self.assertIn("failed", self.runner(*words).result_of(failing), words)
            runner.results.joinpath("some.json").write_text(json.dumps(result))
        runner.key["commit"] = "another"
        self.assertIsNone(runner.kept(section))

    def test_a_failure_is_named_and_runs_again(self) -> None:
        runner = self.runner()
        result = runner.result_of(self.section("print('rows'); raise SystemExit(7)"))
        self.assertIn("status 7", result["failed"])
        self.assertIn("**Failed:** ", "\n".join(report.section_text(SECTIONS[0], result)))
        self.assertIsNone(runner.kept(self.section("")))

    def test_what_is_missing_is_named(self) -> None:
        runner = self.runner()
        section = self.section("", needs=("module:no_such_package",))
        self.assertEqual(
            runner.result_of(section),
            {"left_out": "the Python package no_such_package is not installed"},
        )
        scale = next(section for section in SECTIONS if section.name == "scale")
        self.assertEqual(runner.missing(scale), "needs --scale FOLDER")
        self.assertEqual(runner.missing(SECTIONS[0]), "the program view_bench was not built")

    def test_fields_of_all_commands_exist(self) -> None:
        for words in ([], ["--quick"]):
            runner = self.runner(*words)
            for section in SECTIONS:
                for command in section.commands:
                    for word in runner.words(command, pathlib.Path("raw.json")):
                        self.assertNotIn("{", word)

    def test_sections_may_be_named_by_several_options(self) -> None:
        words = ["--only", "views", "--only", "joins", "pixels"]
        self.assertEqual(report.options_of(words).only, ["views", "joins", "pixels"])

    def test_a_report_that_cannot_be_written_is_refused_first(self) -> None:
        for output in (self.build, self.build / "no" / "r.md"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                report.options_of(["-o", str(output)])

    def test_sections_are_listed(self) -> None:
        command = ["bash", str(ROOT / "tools" / "bench.sh"), "--list"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        self.assertEqual(
            [line.split()[0] for line in done.stdout.splitlines()],
            [section.name for section in SECTIONS],
        )


class ServerTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "shards")
        path.mkdir()
        (path / "a&b.tar").write_bytes(b"0123456789")
        (path / "empty").write_bytes(b"")
        self.server = Server(folder.name)

    def ask(self, line: str, **headers: str) -> tuple[int, str, bytes]:
        head, body = self.server.answer(f"{line} HTTP/1.1", headers)
        return int(head.split()[1]), head.decode(), bytes(body)

    def test_ranges_are_those_of_http(self) -> None:
        name = "/bucket/shards/a%26b.tar"
        for wanted, body in (
            ("bytes=2-4", b"234"),
            ("bytes=8-", b"89"),
            ("bytes=-3", b"789"),
            ("bytes=4-99", b"456789"),
        ):
            status, head, sent = self.ask(f"GET {name}", range=wanted)
            self.assertEqual((status, sent), (206, body), wanted)
            self.assertIn(f"Content-Length: {len(body)}\r\n", head)
        self.assertIn("Content-Range: bytes 4-9/10\r\n", head)
        self.assertEqual(self.ask(f"GET {name}", range="bytes=10-")[0], 416)
        self.assertEqual(self.ask("GET /bucket/shards/empty")[::2], (200, b""))

    def test_head_has_the_length_and_no_body(self) -> None:
        status, head, body = self.ask("HEAD /bucket/shards/a%26b.tar")
        self.assertEqual((status, body), (200, b""))
        self.assertIn("Content-Length: 10\r\n", head)
        self.assertRegex(head, r'ETag: "[0-9a-f-]+"\r\n')

    def test_other_requests_are_refused(self) -> None:
        self.assertEqual(self.ask("GET /bucket/shards/none.tar")[0], 404)
        self.assertEqual(self.ask("PUT /bucket/shards/a%26b.tar")[0], 405)

    def test_a_prefix_is_listed(self) -> None:
        status, _, body = self.ask("GET /bucket?list-type=2&prefix=shards%2Fa")
        self.assertEqual(status, 200)
        self.assertIn(b"<Key>shards/a&amp;b.tar</Key>", body)
        self.assertIn(b"<Size>10</Size>", body)
        self.assertIn(b"<KeyCount>1</KeyCount>", body)

    def test_requests_and_bytes_are_counted(self) -> None:
        self.ask("GET /bucket/shards/a%26b.tar")
        self.ask("GET /bucket/shards/a%26b.tar", range="bytes=0-4")
        self.assertEqual(self.ask("GET /count")[2], b"[2, 15]")
        self.assertEqual(self.ask("GET /count")[2], b"[0, 0]")


if __name__ == "__main__":
    unittest.main()
