"""Sums up a run of ctest by test cases: which failed, which were skipped and why, how many passed.

    python3 tests/summary.py build-test/results

RESULTS holds ctest.xml, which ctest --output-junit wrote, and an XML file for each ctest test whose
program reports its cases (GoogleTest, pytest). A ctest test without such a file is one case.
The last line is "N passed, N failed, N skipped". Exits 1 if a case failed, or none ran.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def outcome_of(case):
    """Returns "passed", "failed" or "skipped" for a <testcase>, and the reason if skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed", ""
    skipped = case.find("skipped")
    if skipped is not None:
        reason = skipped.get("message") or skipped.text or ""
        # GoogleTest puts the source line first.
        return "skipped", re.sub(r"^\S+:\d+\s+", "", reason.strip()).split("\n")[0]
    return "passed", ""


def cases_of(file):
    """Yields (name, outcome, reason) of each case that a GoogleTest or pytest process ran."""
    for case in ElementTree.parse(file).iter("testcase"):
        if case.get("status") == "notrun" or case.get("result") == "suppressed":
            continue  # runs in another of the program's ctest tests, or was filtered out
        name = f"{case.get('classname')}.{case.get('name')}"
        yield name, *outcome_of(case)


def reason_in(output):
    """Returns the output line in which a skipped ctest test says why."""
    lines = [line.strip() for line in (output or "").splitlines() if line.strip()]
    return next((line for line in lines if re.search("skip", line, re.I)), lines[-1] if lines else "")


def unfinished_in(output):
    """Returns the case that was running when a GoogleTest process ended; None if no case was."""
    name = None
    for match in re.finditer(r"^\[ (RUN |      OK|  FAILED |  SKIPPED) +\] (\S+)", output or "", re.M):
        name = match[2] if match[1] == "RUN " else None
    return name


def main(results):
    results = pathlib.Path(results)
    counts = collections.Counter()
    failed = []
    skipped = collections.defaultdict(list)
    for entry in ElementTree.parse(results / "ctest.xml").iter("testcase"):
        name = entry.get("name")
        outcome, reason = outcome_of(entry)
        output = entry.findtext("system-out")
        file = results / f"{name}.xml"
        cases = list(cases_of(file)) if file.exists() else []
        # Leave out cases that another ctest test runs.
        cases = [case for case in cases if not case[2].startswith("runs in a process of its own")]
        if outcome == "skipped" and not cases:
            cases = [(name, "skipped", reason_in(output))]
        if outcome == "failed" and not any(case[1] == "failed" for case in cases):
            running = unfinished_in(output)
            cases.append((f"{name} ({running})" if running else name, "failed", ""))
        for case, result, why in cases or [(name, outcome, reason)]:
            counts[result] += 1
            if result == "failed":
                failed.append(case if case.startswith(name) else f"{name}: {case}")
            elif result == "skipped":
                skipped[why or "no reason given"].append(case)
    for why, cases in sorted(skipped.items()):
        names = ", ".join(cases[:3]) + (", ..." if len(cases) > 3 else "")
        print(f"skipped ({len(cases)}): {why} [{names}]")
    for case in failed:
        print(f"FAILED: {case}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
