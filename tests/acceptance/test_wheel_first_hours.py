"""The first hours of three users, from the README to a guide, in real terminals: docs/tutorial/first-hours.md shows them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.acceptance.conftest import FIRST_HOURS, Installed, follow, installs, new_home
from tests.acceptance.hours import Guide, Hour
from tests.docs.pages import ROOT, blocks
from tests.docs.transcripts import steps
from tests.servers.ports import free_port

# By transcript: the pages that its user follows.
GUIDES = {
    "loop": ["docs/howto/from-a-while-loop.md"],
    "uploads": ["README.md", "docs/howto/move-an-upload-endpoint.md"],
    "exports": ["docs/tutorial/grades.md"],
}


@pytest.fixture(scope="module")
def hours(
    request: pytest.FixtureRequest, installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """All that are selected at once, because their users mostly wait. `exports` installs another extra, in its own home."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = {item.callspec.params["name"] for item in items if item.path == request.path}
    homes = {name: installed for name in GUIDES if name in wanted}
    if "exports" in homes:
        homes["exports"] = new_home(tmp_path_factory.mktemp("exports"))
    with ThreadPoolExecutor(len(GUIDES)) as pool:
        yield {name: pool.submit(play, name, home) for name, home in homes.items()}


def play(name: str, installed: Installed) -> None:
    guide = guide_of(name)
    ports = {"8000": free_port(), "8642": free_port()}
    environment = dict(installed.environment)
    if "README.md" in GUIDES[name]:  # its service and client use the default port
        environment |= {"BIDE_PORT": str(ports["8642"]), "BIDE_URL": f"http://127.0.0.1:{ports['8642']}"}
    with Hour(installed.home, environment, guide, ports) as hour:
        follow(hour, installed, steps(FIRST_HOURS, name))
    assert guide.left == [], "the transcript does not have these commands of the guide"


def guide_of(name: str) -> Guide:
    found = [block for page in GUIDES[name] for block in blocks(ROOT / page)]
    return Guide(block for block in found if block not in installs() and "$ make" not in block.text)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [name if name == "uploads" else pytest.param(name, marks=pytest.mark.soak) for name in GUIDES],
)
def test_the_terminals_of_a_first_hour(name: str, hours: dict[str, Future[None]]) -> None:
    hours[name].result()
