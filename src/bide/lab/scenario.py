"""Scenarios: the limit of an API and the jobs sent to it, read from TOML. Errors name the field."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bide.core.errors import SetupError

Draw = Callable[[random.Random], float]


@dataclass(frozen=True)
class Rules:
    """The limit that the API enforces; infinite `requests` means none."""

    kind: str = "bucket"
    requests: float = math.inf
    per: float = 1.0
    burst: float = 1.0
    advertised: bool = True
    cost: float = 1.0
    concurrent: int = 0


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one kind: how many, when they arrive, how long they take."""

    kind: str
    count: int
    every: float | None  # mean gap of Poisson arrivals; None: all at once
    draw: Draw
    progress: str = "none"
    batch: int = 1
    drift: float = 1.0
    burst: int = 0  # jobs that arrive together, every `every` seconds; 0: one by one


@dataclass(frozen=True)
class Scenario:
    name: str
    seed: int
    limit: Rules
    groups: tuple[JobGroup, ...]


def shipped() -> list[str]:
    """The names of the scenarios that come with bide."""
    folder = resources.files("bide.lab") / "scenarios"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_scenario(source: str | Path) -> Scenario:
    """Read a scenario from a file, or by the name of a shipped one."""
    path = Path(source)
    if path.suffix != ".toml" and str(source) in shipped():
        text = (resources.files("bide.lab") / "scenarios" / f"{source}.toml").read_text("utf-8")
    else:
        try:
            text = path.read_text("utf-8")
        except OSError as error:
            raise SetupError(
                f"There is no scenario {source}: {error.strerror}. Give a file or one of {', '.join(shipped())}"
            ) from None
        except UnicodeDecodeError:
            raise SetupError(f"The scenario {source} is not UTF-8 text") from None
    return parse_scenario(text, path.stem)


def parse_scenario(text: str, name: str = "scenario") -> Scenario:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{name}: not TOML: {error}") from None
    fields = _Fields(data, name)
    limit = fields.table("limit")
    groups = data.get("jobs")
    if not isinstance(groups, list) or not groups:
        raise fields.wrong("jobs", "at least one [[jobs]] table is needed")
    read = [_Fields(group, f"{name}: jobs[{i}]") for i, group in enumerate(groups)]
    scenario = Scenario(
        name=name,
        seed=int(fields.number("seed", 1, whole=True)),
        limit=_rules(limit) if limit is not None else Rules(),
        groups=tuple(_group(group) for group in read),
    )
    fields.done("jobs", "limit")
    return scenario


class _Fields:
    """A TOML table. `done` rejects the fields that were not read."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, Mapping):
            raise SetupError(f"{where}: must be a table")
        self.data = data
        self.where = where
        self.taken: set[str] = set()

    def wrong(self, field: str, why: str) -> SetupError:
        dot = "." if self.where.endswith("]") or ": " in self.where else ": "
        return SetupError(f"{self.where}{dot}{field}: {why}")

    def take(self, field: str, default: Any) -> Any:
        self.taken.add(field)
        value = self.data.get(field, default)
        if value is None:
            raise self.wrong(field, "is missing")
        return value

    def table(self, field: str) -> _Fields | None:
        self.taken.add(field)
        return _Fields(self.data[field], f"{self.where}: {field}") if field in self.data else None

    def number(
        self, field: str, default: float | None, *, least: float = 0.0, whole: bool = False
    ) -> float:
        value = self.take(field, default)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise self.wrong(field, f"must be a {'whole ' if whole else ''}number, not {value!r}")
        if not least <= value < math.inf:
            raise self.wrong(field, f"must be {least:g} or more, not {value!r}")
        return value

    def positive(self, field: str, default: float | None) -> float:
        value = self.number(field, default)
        if value == 0:
            raise self.wrong(field, "must be above 0")
        return value

    def choice(self, field: str, default: Any, choices: tuple[Any, ...]) -> Any:
        value = self.take(field, default)
        if value not in choices or isinstance(value, bool) != isinstance(choices[0], bool):
            raise self.wrong(field, f"must be one of {', '.join(map(str, choices))}, not {value!r}")
        return value

    def done(self, *taken: str) -> None:
        unknown = sorted(set(self.data) - self.taken - set(taken))
        if unknown:
            raise self.wrong(unknown[0], f"unknown field. Known fields: {', '.join(sorted(self.taken))}")


def _rules(fields: _Fields) -> Rules:
    requests = fields.positive("requests", None)
    rules = Rules(
        kind=fields.choice("kind", "bucket", ("bucket", "window")),
        requests=requests,
        per=fields.positive("per", 60.0),
        burst=fields.number("burst", max(1.0, requests), least=1.0),
        advertised=fields.choice("advertised", True, (True, False)),
        cost=fields.positive("cost", 1.0),
        concurrent=int(fields.number("concurrent", 0, whole=True)),
    )
    if rules.cost > (rules.burst if rules.kind == "bucket" else rules.requests):
        raise fields.wrong("cost", "one request costs more than the limit ever allows at once")
    fields.done()
    return rules


def _group(fields: _Fields) -> JobGroup:
    arrival = fields.take("arrival", "burst")
    every, burst = None, 0
    if isinstance(arrival, Mapping):
        inner = _Fields(arrival, f"{fields.where}.arrival")
        every = inner.positive("every", None)
        burst = int(inner.number("burst", 0, whole=True))
        inner.done()
    elif arrival != "burst":
        forms = '"burst", { every = 30.0 } or { burst = 50, every = 86400.0 }'
        raise fields.wrong("arrival", f"must be {forms}, not {arrival!r}")
    group = JobGroup(
        kind=str(fields.take("kind", "job")),
        count=int(fields.number("count", None, least=1, whole=True)),
        every=every,
        draw=_duration(fields.take("duration", None), f"{fields.where}.duration"),
        progress=fields.choice("progress", "none", ("none", "exact", "noisy")),
        batch=int(fields.number("batch", 1, least=1, whole=True)),
        drift=fields.positive("drift", 1.0),
        burst=burst,
    )
    fields.done()
    return group


def _duration(value: Any, where: str) -> Draw:
    forms = "{ fixed = 10 }, { uniform = [120, 900] }, { lognormal = [median, sigma] }, { mixture = … } or { trace = … }"
    if not isinstance(value, Mapping) or len(value) != 1:
        raise SetupError(f"{where}: must be one of {forms}")
    ((form, given),) = value.items()
    match form:
        case "fixed":
            (seconds,) = _numbers([given], 1, f"{where}.fixed")
            return lambda rng: seconds
        case "uniform":
            low, high = _numbers(given, 2, f"{where}.uniform")
            return lambda rng: rng.uniform(low, high)
        case "lognormal":
            median, sigma = _numbers(given, 2, f"{where}.lognormal")
            if median == 0:
                raise SetupError(f"{where}.lognormal: the median must be above 0")
            return lambda rng: rng.lognormvariate(math.log(median), sigma)
        case "trace":
            times = _numbers(given, None, f"{where}.trace")
            return lambda rng: rng.choice(times)
        case "mixture":
            return _mixture(given, f"{where}.mixture")
    raise SetupError(f"{where}: unknown form {form!r}; must be one of {forms}")


def _mixture(given: Any, where: str) -> Draw:
    if (
        not isinstance(given, list)
        or not given
        or any(not isinstance(g, list) or len(g) != 2 for g in given)
    ):
        raise SetupError(f"{where}: must be a list of [share, duration]")
    shares = _numbers([share for share, _ in given], None, where)
    draws = [_duration(value, f"{where}[{i}]") for i, (_, value) in enumerate(given)]
    if sum(shares) <= 0:
        raise SetupError(f"{where}: the shares must add up to more than 0")
    return lambda rng: rng.choices(draws, shares)[0](rng)


def _numbers(given: Any, count: int | None, where: str) -> list[float]:
    if (
        not isinstance(given, list)
        or len(given) != (count or len(given))
        or not given
        or any(
            isinstance(x, bool) or not isinstance(x, int | float) or not 0 <= x < math.inf for x in given
        )
    ):
        many = (
            "at least one number" if count is None else f"{count} numbers" if count > 1 else "a number"
        )
        raise SetupError(f"{where}: must be {many} of 0 or more, not {given!r}")
    return [float(x) for x in given]
