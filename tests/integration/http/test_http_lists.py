"""GET /jobs: many jobs at once, and the list with its filters and cursor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.http.service import Service


async def _get(service: Service, query: str) -> Any:
    reply = await service.call("GET", f"/jobs?{query}")
    assert reply.status == 200, reply.body
    return reply.json()


def _ids(page: Any) -> list[str]:
    return [job["jobId"] for job in page["jobs"]]


async def test_many_by_id_with_the_missing_ones(service: Service) -> None:
    a, b, gone = [await service.submit() for _ in range(3)]
    await service.call("DELETE", f"/jobs/{gone}")
    page = await _get(service, f"id={b}&id=nothing&id={a}&id={gone}&id={b}")
    assert _ids(page) == [b, a]
    assert (page["next"], page["missing"]) == (None, ["nothing", gone])


async def test_many_by_id_tell_when_to_ask_again(service: Service) -> None:
    done = await service.done()
    waiting = await service.submit()
    reply = await service.call("GET", f"/jobs?id={done.id}&id={waiting}")
    assert int(reply.headers["retry-after"]) >= 1
    assert "retry-after" not in (await service.call("GET", f"/jobs?id={done.id}")).headers


async def test_a_hundred_ids_and_no_more(service: Service) -> None:
    query = "&".join(f"id=x{i}" for i in range(100))
    assert len((await _get(service, query))["missing"]) == 100
    reply = await service.call("GET", f"/jobs?{query}&id=y")
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "?id")


async def test_the_list_is_newest_first_and_goes_on_at_the_cursor(service: Service) -> None:
    ids = []
    for _ in range(5):
        ids.append(await service.submit())
        service.clock.advance(1)
    first = await _get(service, "limit=2")
    assert _ids(first) == ids[:2:-1]
    second = await _get(service, f"limit=2&cursor={first['next']}")
    await service.submit()  # a newer one does not shift the pages
    third = await _get(service, f"limit=2&cursor={second['next']}")
    assert _ids(second) + _ids(third) == [ids[2], ids[1], ids[0]]
    assert third["next"] is None
    exact = await _get(service, f"limit=1&cursor={second['next']}")
    assert (_ids(exact), exact["next"]) == ([ids[0]], None)


async def test_the_filters(service: Service) -> None:
    done = (await service.done()).id
    red = await service.submit(labels={"team": "red", "a:b": 'q"x'})
    video = await service.submit("encode", input={"source": "s"}, labels={"team": "blue"})
    moved = await service.submit(queue="video")
    for query, expected in {
        "status=DONE": [done],
        "status=DONE&status=PENDING": [moved, video, red, done],
        "status=ERROR": [],
        "kind=encode": [video],
        "kind=unknown": [],
        "queue=video": [moved, video],
        "queue=video&kind=echo": [moved],
        "label=team:red": [red],
        "label=team:": [],
    }.items():
        assert sorted(_ids(await _get(service, query))) == sorted(expected), query


async def test_a_label_may_have_any_name(service: Service) -> None:
    for name in ('a"b', "a.b", "$", "[0]", "ü", "", "a b", "a\\b"):
        job_id = await service.submit(labels={name: "v"})
        from urllib.parse import quote

        assert _ids(await _get(service, f"label={quote(name)}:v")) == [job_id], name


@pytest.mark.parametrize(
    ("query", "status", "place"),
    [
        ("limit=0", 422, "?limit"),
        ("limit=101", 422, "?limit"),
        ("limit=ten", 422, "?limit"),
        ("limit=", 422, "?limit"),
        ("limit=1&limit=2", 422, "?limit"),
        ("limit=%D9%A1", 422, "?limit"),  # a digit, but not ours
        ("status=RUNNING", 422, "?status"),
        ("status=done", 422, "?status"),
        ("label=team", 422, "?label"),
        ("label=a:b&label=c:d", 422, "?label"),
        ("kind=a&kind=b", 422, "?kind"),
        ("id=a&kind=b", 422, "?kind"),
        ("colour=red", 422, "?colour"),
        ("cursor=abc", 400, None),
        ("cursor=", 400, None),
        ("cursor=MTp4", 400, None),
        ("cursor=%C3%BC", 400, None),
        ("&".join(f"id={i}" for i in range(300)), 400, None),
    ],
)
async def test_bad_parameters_are_named(
    service: Service, query: str, status: int, place: str | None
) -> None:
    reply = await service.call("GET", f"/jobs?{query}")
    problem = reply.json()
    assert reply.status == status, problem
    if place is not None:
        assert problem["errors"][0]["pointer"] == place
        assert place[1:] in problem["detail"]
