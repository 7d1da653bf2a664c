"""`bide simulate`: a table, JSON, a plot, and errors that say what to do."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bide.cli import root

ROOT = Path(__file__).parents[2]
SCENARIO = """
[limit]
requests = 60
per = 60.0
[[jobs]]
kind = "k"
count = 10
duration = { uniform = [10, 30] }
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    return str(path)


def simulate(*args: str) -> Result:
    return CliRunner().invoke(root, ["simulate", *args], prog_name="bide")


def test_a_table_of_all_policies_and_advice(scenario: str) -> None:
    result = simulate(scenario, "--seeds", "2")
    assert result.exit_code == 0, result.output
    for name in ("adaptive", "oracle", "fixed:30", "google", "grow-2-to-10", "backoff:1,2,60"):
        assert name in result.stdout
    assert "e+" not in result.output
    assert result.stderr.splitlines()[-1].startswith("the budget is ")


def test_one_object_a_policy(scenario: str) -> None:
    result = simulate(scenario, "--json", "--policy", "adaptive", "--policy", "fixed:5", "--price", "2")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["policy"] for one in found] == ["adaptive", "fixed:5"]
    assert [one["price"] for one in found] == [2.0, None]
    assert found[1]["requestsPerJob"] == found[1]["requests"] / 10


def test_several_seeds_give_intervals(scenario: str) -> None:
    result = simulate(scenario, "--json", "--policy", "fixed:5", "--seeds", "3")
    (one,) = (json.loads(line) for line in result.stdout.splitlines())
    assert one["seeds"] == 3
    assert one["interval"]["delay"]["mean"] > 0


def test_a_shipped_scenario_by_its_name() -> None:
    result = simulate("constant", "--policy", "fixed:30", "--json")
    assert json.loads(result.stdout)["jobs"] == 200


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere"], "lipsync-burst"),
        (["constant", "--policy", "clever"], "no policy 'clever'"),
        (["constant", "--seeds", "0"], "--seeds"),
        (["constant", "--price", "0"], "--price"),
    ],
)
def test_errors_say_what_to_do(args: list[str], says: str) -> None:
    result = simulate(*args)
    assert result.exit_code in (1, 2)
    assert says in result.stderr


def test_a_plot_without_matplotlib_says_what_to_install(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = simulate(scenario, "--policy", "fixed:5", "--plot", "p.png")
    assert result.exit_code == 1
    assert "pip install '.[plot]'" in result.stderr
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "plot" in extras
    assert not Path("p.png").exists()


def test_a_plot(scenario: str) -> None:
    result = simulate(scenario, "--policy", "fixed:5", "--policy", "adaptive", "--plot", "p.png")
    assert result.exit_code == 0, result.output
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
