"""Random histories until the time is over: `python -m tests.simulation --seconds 60`. Prints the seed of each that goes
wrong; `--seed` runs one history again and says what happened in it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from functools import partial

from tests.servers.postgres import Postgres
from tests.simulation.histories import MakeWorld, judged, on, random_history
from tests.simulation.postgres import PostgresDatabase
from tests.simulation.sqlite import SqliteDatabase


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="of one history")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of a history
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if arguments.store == "sqlite":
        return _run(on(SqliteDatabase, "one"), arguments)
    server = Postgres(safe=False)
    try:
        return _run(on(partial(PostgresDatabase, server.url), "one", "two"), arguments)
    finally:
        server.end()


def _run(make: MakeWorld, arguments: argparse.Namespace) -> int:
    if arguments.seed is not None:
        for deed in random_history(arguments.seed):
            print(*deed)
        wrong = _wrong(make, arguments.seed)
        print(*wrong, sep="\n")
        return int(bool(wrong))
    end = time.perf_counter() + arguments.seconds
    count = failed = 0
    while time.perf_counter() < end:
        seed = random.SystemRandom().randrange(2**32)
        count += 1
        if wrong := _wrong(make, seed):
            failed += 1
            print(f"--store {arguments.store} --seed {seed}: {wrong[0][:300]}", flush=True)
    print(f"{count} histories, {failed} failed")
    return int(failed > 0)


def _wrong(make: MakeWorld, seed: int) -> list[str]:
    try:
        return judged(make, seed, random_history(seed))
    except Exception as error:  # an exception of a service ends the history
        return [f"{type(error).__name__}: {error}"]


sys.exit(main())
