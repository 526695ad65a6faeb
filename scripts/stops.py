#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stops processes of the tests at random and lets them go on, as a busy machine does, but worse.

    scripts/stops.py SEED FOLDER

Until it gets SIGTERM: a process whose program lies below FOLDER (a test, or a program of ours that
a test runs) stands still for 0.2 to 0.9 s, one at a time. A test whose verdict depends on who is
first fails sooner or later, and is to be mended: `STOPS=1 make test` (scripts/test.sh). SEED
chooses moments and processes, as far as the run repeats itself. Prints how often one was stopped.
"""

import os
import random
import signal
import sys
import time

STOPPED_S = (0.2, 0.9)
BETWEEN_S = (0.05, 0.3)


def processes(folder):
    """The numbers of the processes whose program lies below a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/exe").startswith(folder + "/"):
                found.append(int(name))
        except OSError:
            # It has ended, or is another user's.
            continue
    return found


def stop_one(process, seconds):
    """Stops a process for a while; false where it has ended."""
    try:
        os.kill(process, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    try:
        time.sleep(seconds)
    finally:
        try:
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            # Killed meanwhile.
            pass
    return True


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    chance, folder = random.Random(sys.argv[1]), os.path.realpath(sys.argv[2])
    # Ends a sleep, and what was stopped goes on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    stopped = 0
    try:
        while True:
            if candidates := processes(folder):
                stopped += stop_one(chance.choice(candidates), chance.uniform(*STOPPED_S))
            time.sleep(chance.uniform(*BETWEEN_S))
    finally:
        print(f"stops: {stopped} times a process stood still")


if __name__ == "__main__":
    main()
