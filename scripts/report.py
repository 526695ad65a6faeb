#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Result of a run of tests: what was skipped and why, the slowest tests, flaky ones, the counts.

    scripts/report.py JUNIT LOG [FLAKY]

JUNIT is the report of cargo-nextest, whose tests' output has lines `skip: REASON`; LOG is the
output of the steps beside the tests, which may have such lines, too. FLAKY is the list of tests
that may be run again (.config/flaky.toml). Prints for people, then four lines for scripts:
`passed N`, `failed N`, `flaky N`, `skipped N`.

Exit status 1 when the run is red though no test failed:
- with CI set, a skip for want of a program, a package or a part of one: scripts/setup.sh installs
  them, so on CI that is a fault of the set-up; what the host's kernel or processor lacks is none;
- more than BUSY_MAX skips for a busy machine;
- more than FLAKY_MAX tests needed another try, or one that the list lacks, or the list has an entry
  that is older than FLAKY_DAYS_MAX or has no cause.
"""

import datetime
import os
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree

# The line of a missing program says so, or has the shell's or execve(2)'s own words for it.
MISSING_PROGRAM = re.compile(r"not installed|: not found|No such file or directory")
BUSY = re.compile(r"^skip: busy machine: ")
BUSY_MAX = 5
FLAKY_MAX = 3
FLAKY_DAYS_MAX = 14
SLOWEST_SHOWN = 10


class Case:
    """One test: its name as nextest has it, `PROGRAM TEST`; seconds; whether it failed."""

    def __init__(self, element):
        self.name = f"{element.get('classname')} {element.get('name')}"
        self.seconds = float(element.get("time", 0))
        self.failed = element.find("failure") is not None or element.find("error") is not None
        self.flaky = element.find("flakyFailure") is not None
        self.output = "".join(
            (element.findtext(stream) or "") for stream in ("system-out", "system-err")
        )


def cases_of(junit):
    """The tests of a report; none where the build failed and there is no report."""
    if not os.path.exists(junit):
        return []
    return [Case(element) for element in ElementTree.parse(junit).iter("testcase")]


def skips_of(cases, log):
    """Lines `skip: REASON (TEST)`, each once, in the order of the run."""
    lines = {}
    for case in cases:
        for line in case.output.splitlines():
            if line.startswith("skip:"):
                lines[f"{line} ({case.name})"] = None
    for line in log.splitlines():
        if line.startswith("skip:"):
            lines[line] = None
    return list(lines)


def faults_of_flaky(cases, listed, today):
    """Reasons for which tests that needed another try make the run red."""
    faults = []
    names = [case.name for case in cases if case.flaky]
    if len(names) > FLAKY_MAX:
        faults.append(f"{len(names)} tests needed another try, more than {FLAKY_MAX}")
    known = {entry.get("test") for entry in listed}
    unknown = [name for name in names if name not in known]
    faults += [f"{name}: needed another try, and is not in the list" for name in unknown]
    for entry in listed:
        name, date = entry.get("test", "an entry without a test"), entry.get("date")
        if not entry.get("cause"):
            faults.append(f"{name}: its entry names no cause")
        if not isinstance(date, datetime.date):
            faults.append(f"{name}: its entry has no date; write date = {today.isoformat()}")
        elif (today - date).days > FLAKY_DAYS_MAX:
            since = f"listed since {date}, more than {FLAKY_DAYS_MAX} days"
            faults.append(f"{name}: {since}; mend the test")
    return faults


def faults_of_skips(skips, is_ci):
    """Reasons for which skips make the run red."""
    faults = []
    if is_ci:
        missing = [line for line in skips if MISSING_PROGRAM.search(line)]
        want = "skipped for want of a program, which scripts/setup.sh has to install"
        faults += [f"{want}: {line}" for line in missing]
    busy = [line for line in skips if BUSY.match(line)]
    if len(busy) > BUSY_MAX:
        faults.append(f"{len(busy)} tests were skipped on a busy machine, more than {BUSY_MAX}")
    return faults


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit("usage: scripts/report.py JUNIT LOG [FLAKY]")
    cases = cases_of(arguments[0])
    with open(arguments[1], encoding="utf-8", errors="replace") as file:
        log = file.read()
    listed = []
    if len(arguments) == 3:
        with open(arguments[2], "rb") as file:
            listed = tomllib.load(file).get("flaky", [])

    failed = [case for case in cases if case.failed]
    flaky = [case for case in cases if case.flaky]
    skips = skips_of(cases, log)
    faults = faults_of_skips(skips, bool(os.environ.get("CI")))
    faults += faults_of_flaky(cases, listed, datetime.date.today())

    show("skipped, with the reason", skips)
    slowest = sorted(cases, key=lambda case: -case.seconds)[:SLOWEST_SHOWN]
    show("slowest tests", [f"{case.seconds:7.2f} s  {case.name}" for case in slowest])
    show("tests that needed another try", [case.name for case in flaky])
    show("failed tests", [case.name for case in failed])
    show("faults of the run", faults)
    print()
    print(f"passed {len(cases) - len(failed)}")
    print(f"failed {len(failed)}")
    print(f"flaky {len(flaky)}")
    print(f"skipped {len(skips)}")
    return 1 if faults else 0


def show(title, lines):
    """Prints a list under its title; nothing where it is empty."""
    if lines:
        print(f"\n{title}:")
        for line in lines:
            print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
