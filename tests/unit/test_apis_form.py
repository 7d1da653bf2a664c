"""The form: what it can express, and what it says about a mistake."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.client.apis import (
    Answer,
    BadDescription,
    Call,
    Crowded,
    Ref,
    Seen,
    Throttled,
    load,
    names,
    text_of,
)
from bide.client.apis.answers import BadPoll
from bide.client.apis.form import Description
from bide.client.apis.loader import read
from bide.client.apis.paths import Document, source
from bide.client.apis.templates import MissingValue, Template, compile_body, fill_body
from bide.client.apis.toml_lines import keys, line_of
from bide.core.errors import ServiceError, SetupError

GOOD = """\
name = "mine"
url = "https://api.example.com"

[ask]
path = "/jobs/{id}"

[read]
status = "status"
live = ["running"]
done = ["ok"]
"""


def test_a_good_one_is_good() -> None:
    assert read(GOOD, "mine.toml").calls.ask(Ref("a")).url == "https://api.example.com/jobs/a"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("[read]", "[raed]", 7, "has no `raed`"),
        ('path = "/jobs/{id}"', 'paht = "/jobs/{id}"', 5, "[ask] has no `paht`"),
        ('path = "/jobs/{id}"', "path = 3", 5, "expected `str | null`, got `int`"),
        ('path = "/jobs/{id}"', 'path = "/jobs/{ID}"', 5, "{ID} in"),
        ('path = "/jobs/{id}"', 'path = "jobs/{id}"', 5, "must begin with a slash"),
        ('path = "/jobs/{id}"', 'path = "/jobs/{id"', 5, "brace"),
        ('path = "/jobs/{id}"', 'method = "GET"', 4, "`path` or `url` is needed"),
        ('status = "status"', 'status = "a..b"', 8, "two dots without a key"),
        ('status = "status"', 'status = "a[b"', 8, "select from a list"),
        ('status = "status"', 'status = "a[b!=c]"', 8, "select from a list"),
        ('status = "status"', 'message = "m"', 7, "`status` or `codes` is needed"),
        ('done = ["ok"]', 'done = ["Running"]', 10, "is in both live and done"),
        ('done = ["ok"]', 'ended = ["ok"]', 10, "`ended` needs `outcome` or `tally`"),
        ('done = ["ok"]', 'progress = "p"\nscale = 0', 11, "`scale` must be above 0"),
        ('done = ["ok"]', 'progress = "p"\npattern = "("', 11, "not a regular expression"),
        ('done = ["ok"]', 'codes = { 2000 = "done" }', 10, "'2000' is not an HTTP status"),
        ('done = ["ok"]', 'otherwise = "maybe"', 10, "invalid enum value"),
        ('done = ["ok"]', '[limits]\nrequests = "sixty"', 11, "'sixty' is not a limit"),
        ('done = ["ok"]', '[cancel]\nmethod = "post"\npath = "/x"', 11, "'post' is not an HTTP method"),
        ('done = ["ok"]', '[submit]\npath = "/x"', 10, "`id` or `status_url`"),
        ('done = ["ok"]', '[batch]\npath = "/x"\nmost = 0', 12, "`most` must be 1 or more"),
        ('done = ["ok"]', '[result]\nnext = { items = "a" }', 11, "`items` needs `query`"),
        ('done = ["ok"]', '[result]\nnext = { total = "a", link = true }', 11, "`total` needs `items`"),
        (
            'done = ["ok"]',
            '[[files]]\nurl = "a"\n[[files]]\nname = "b"',
            12,
            "a file needs `url` or `path`",
        ),
        ('done = ["ok"]', '[auth]\nkind = "oauth2"', 11, "`token_url`"),
        ('done = ["ok"]', '[auth]\nkind = "magic"', 11, "invalid enum value"),
        ('done = ["ok"]', "done = [ok]", 10, "invalid value"),
        ('name = "mine"', 'written = "{job}"\nname = "mine"', 1, "must contain {id}"),
    ],
)
def test_a_mistake_is_reported_with_its_line(old: str, new: str, line: int, says: str) -> None:
    with pytest.raises(BadDescription) as caught:
        read(GOOD.replace(old, new, 1), "mine.toml")
    assert says.lower() in str(caught.value).lower()
    assert (caught.value.file, caught.value.line) == ("mine.toml", line)
    assert str(caught.value).startswith(f"mine.toml, line {line}: ")


def test_what_is_missing_altogether_has_no_line() -> None:
    with pytest.raises(BadDescription, match=r"mine\.toml: the description lacks `ask`"):
        read('name = "mine"\n[read]\nstatus = "s"\n', "mine.toml")


def test_from_a_file_and_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    assert load(file).name == load(str(file), "https://other").name == "mine"
    assert load(file, "https://other/").url == "https://other"
    with pytest.raises(SetupError, match=r"no API 'nobody'.*sync\.so"):
        load("nobody")
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    for url in ("ftp://x", "https://user:pass@x", "https://x?a=1", "x"):
        with pytest.raises(SetupError, match="not the address of an API") as caught:
            load(file, url)
        assert "pass" not in str(caught.value)


# --- lines


LINES = '''
top = 1 # a = 2
"quoted key" = """
[not.a.table]
x = 1
"""
[a.b]
list = [
  1, # y = 1
  "]",
]
c.d = 3
[[files]]
name = "x"
[[files]]
name = "y"
[files.inner]
z = { deep = 1 }
'''


def test_the_lines_of_keys() -> None:
    found = dict(keys(LINES))
    assert found == {
        ("top",): 2,
        ("quoted key",): 3,
        ("a", "b"): 7,
        ("a", "b", "list"): 8,
        ("a", "b", "c", "d"): 12,
        ("files", 0): 13,
        ("files", 0, "name"): 14,
        ("files", 1): 15,
        ("files", 1, "name"): 16,
        ("files", 1, "inner"): 17,
        ("files", 1, "inner", "z"): 18,
    }
    assert line_of(LINES, ("files", 1, "inner", "z", "deep")) == 18
    assert line_of(LINES, ("a", "b", "missing")) == 7
    assert line_of(LINES, ("nowhere",)) is None


@pytest.mark.parametrize("name", names())
def test_the_lines_of_what_is_shipped(name: str) -> None:
    text = text_of(name)
    lines = text.split("\n")
    for place, line in keys(text):
        last = next(str(p) for p in reversed(place) if isinstance(p, str))
        assert last in lines[line - 1]
    assert {p[0] for p, _ in keys(text)} == set(tomllib.loads(text))


# --- templates and sources


def test_a_value_in_a_path_is_encoded() -> None:
    template = Template("/jobs/{id}", escape=True)
    assert (
        template.fill({"id": "a/b?c#d e"}) == "/jobs/a%2Fb%3Fc%23d%20e" == template.around("a/b?c#d e")
    )
    kept = Template("/v1/{+id}", escape=True)
    assert kept.fill({"id": "/p/o?x"}) == "/v1/p/o%3Fx"
    with pytest.raises(MissingValue):
        template.fill({})


@given(st.text(min_size=1))
def test_an_id_stays_within_its_path(id: str) -> None:
    filled = Template("/jobs/{id}/x", escape=True).fill(
        {"id": id.encode("utf-8", "ignore").decode() or "a"}
    )
    assert filled.count("/") == 3
    assert filled.isascii()
    assert "?" not in filled
    assert "#" not in filled


def test_a_body_keeps_types_and_leaves_out_what_is_missing() -> None:
    body = compile_body(
        {
            "n": "{null}",
            "all": "{input}",
            "one": "{input.x}",
            "none": "{key}",
            "t": "a-{id}",
            "l": ["{id}"],
        }
    )
    assert fill_body(body, {"id": "7", "input": {"x": [1]}}) == {
        "n": None,
        "all": {"x": [1]},
        "one": [1],
        "t": "a-7",
        "l": ["7"],
    }
    query = "query { node(id: $id) { ... on B { status } } }"
    assert fill_body(compile_body({"query": query}), {}) == {"query": query}


def test_sources() -> None:
    body = {"a": {"b": [{"c": 1}, {"c": 2, "rel": "next"}]}, "x.y": 3, "": 0, "0": "zero"}
    for text, wanted in [
        ("a.b.1.c", 2),
        ("a.b[rel=next].c", 2),
        ("a.b[rel*=NEX].c", 2),
        ("a.b[rel!*=NEX].c", 1),
        ("a.b[rel=next][c*=x].c", None),
        ("x\\.y", 3),
        (".", body),
        ("0", "zero"),
        ("a.b.9.c", None),
        ("a.c.d", None),
        ("header:x-id", "h"),
        ("ref:id", "r"),
        ("ref:more", "m"),
    ]:
        assert source(text)(Document(body, {"X-Id": "h"}, Ref("r", None, {"more": "m"}))) == wanted
    assert source(["nothing", "a.b.0.c"])(Document(body)) == 1
    assert source(["e", "f"])(Document({"e": "", "f": False})) is False


# --- the rest of the APIs that the form is for


def described(tables: str, name: str = "x") -> Any:
    return read(f'name = "{name}"\nurl = "https://x.example"\n{tables}', "x.toml")


def seen(api: Any, body: Any, ref: Ref | None = None) -> Seen:
    found = api.read(ref or Ref("a"), Answer(200, {}, json.dumps(body).encode()))
    assert isinstance(found, Seen)
    return found


def test_shopify_by_graphql() -> None:
    api = described("""
[submit]
path = "/graphql.json"
id = "data.bulkOperationRunQuery.bulkOperation.id"
[submit.body]
query = "mutation($q: String!) { bulkOperationRunQuery(query: $q) { bulkOperation { id } } }"
variables = { q = "{input.query}" }
[ask]
method = "POST"
path = "/graphql.json"
body = { query = "query($id: ID!) { node(id: $id) { ... on BulkOperation { status url } } }", variables = { id = "{id}" } }
[read]
status = "data.node.status"
live = ["CREATED", "RUNNING", "CANCELING"]
done = ["COMPLETED"]
failed = ["FAILED", "EXPIRED"]
cancelled = ["CANCELED"]
count = "data.node.objectCount"
[result]
url = ["data.node.url", "data.node.partialDataUrl"]
[[throttled]]
status = [200]
source = "errors.0.extensions.code"
values = ["THROTTLED"]
""")
    call = api.submissions.submit("", {"query": "{ products }"})
    answer = {
        "data": {"bulkOperationRunQuery": {"bulkOperation": {"id": "gid://shopify/BulkOperation/1"}}}
    }
    ref = api.submissions.accepted(call, Answer(200, {}, json.dumps(answer).encode()))
    asked = json.loads(api.calls.ask(ref).body)
    assert asked["variables"] == {"id": "gid://shopify/BulkOperation/1"}
    running = {"data": {"node": {"status": "RUNNING", "objectCount": "12"}}}
    assert seen(api, running, ref).counts == (12.0, None)
    failed = seen(api, {"data": {"node": {"status": "FAILED", "partialDataUrl": "https://s/p"}}}, ref)
    assert (failed.state, failed.result_url) == ("failed", "https://s/p")
    with pytest.raises(Throttled):
        seen(api, {"errors": [{"extensions": {"code": "THROTTLED"}}]}, ref)


def test_salesforce_with_steps_after_create_and_a_paged_result() -> None:
    api = described("""
[submit]
path = "/jobs/ingest"
body = { object = "{kind}", operation = "insert" }
id = "id"
remember = { content = "contentUrl" }
[[submit.then]]
method = "PUT"
url = "ref:content"
headers = { Content-Type = "text/csv" }
[[submit.then]]
method = "PATCH"
path = "/jobs/ingest/{id}"
body = { state = "UploadComplete" }
[ask]
path = "/jobs/ingest/{id}"
[read]
status = "state"
live = ["Open", "UploadComplete", "InProgress"]
done = ["JobComplete"]
failed = ["Failed"]
cancelled = ["Aborted"]
[result]
path = "/jobs/ingest/{id}/successfulResults"
next = { value = "header:Sforce-Locator", query = "locator" }
[[files]]
name = "failed.csv"
path = "/jobs/ingest/{id}/failedResults"
[[files]]
name = "unprocessed.csv"
path = "/jobs/ingest/{id}/unprocessedrecords"
""")
    ref = api.submissions.accepted(
        api.submissions.submit("Contact", {}), Answer(200, {}, b'{"id": "750", "contentUrl": "up/750"}')
    )
    put, patch = api.submissions.then(ref, "Contact", {})
    assert (put.method, put.url) == ("PUT", "https://x.example/jobs/ingest/up/750")
    assert (patch.method, json.loads(patch.body)) == ("PATCH", {"state": "UploadComplete"})
    done = seen(api, {"state": "JobComplete"}, ref)
    rule = api.calls.next_page()
    url = rule.following(
        api.calls.fetch(done.result_url).url, Answer(200, {"Sforce-Locator": "MjAw"}, b"")
    )
    assert url == "https://x.example/jobs/ingest/750/successfulResults?locator=MjAw"
    url = rule.following(url, Answer(200, {"sforce-locator": "NDAw"}, b""))
    assert url.endswith("?locator=NDAw")
    assert rule.following(url, Answer(200, {"Sforce-Locator": "null"}, b"")) is None
    assert [f.name for f in done.files] == ["failed.csv", "unprocessed.csv"]


def test_aws_batch_by_ids() -> None:
    api = described("""
[ask]
method = "POST"
path = "/v1/describejobs"
body = { jobs = ["{id}"] }
[read]
status = ["status", "jobs.0.status"]
id = ["jobId", "jobs.0.jobId"]
live = ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING"]
done = ["SUCCEEDED"]
failed = ["FAILED"]
error = { message = ["statusReason", "jobs.0.statusReason"] }
[batch]
method = "POST"
path = "/v1/describejobs"
body = { jobs = "{ids}" }
items = "jobs"
[cancel]
path = "/v1/terminatejob"
body = { jobId = "{id}", reason = "no longer needed" }
""")
    assert json.loads(api.calls.ask(Ref("a")).body) == {"jobs": ["a"]}
    assert seen(api, {"jobs": [{"jobId": "a", "status": "RUNNABLE"}]}).state == "live"
    assert json.loads(api.calls.ask_many([Ref("a"), Ref("b")]).body) == {"jobs": ["a", "b"]}
    answer = {"jobs": [{"jobId": "b", "status": "FAILED", "statusReason": "spot"}]}
    found = api.read_many([Ref("a"), Ref("b")], Answer(200, {}, json.dumps(answer).encode()))
    assert list(found) == ["b"]
    assert found["b"].error.message == "spot"


def test_a_list_keyed_by_id_and_ids_with_commas() -> None:
    api = described("""
[ask]
path = "/tasks/{id}"
[read]
status = "state"
done = ["SUCCESS"]
[batch]
path = "/tasks"
query = { ids = "{ids}" }
ids = "comma"
""")
    assert api.calls.ask_many([Ref("a"), Ref("b")]).url == "https://x.example/tasks?ids=a%2Cb"
    assert (
        api.read_many([Ref("b")], Answer(200, {}, b'{"b": {"state": "SUCCESS"}, "c": {}}'))["b"].state
        == "done"
    )


def test_docling_and_unstructured_by_long_poll_and_relative_location() -> None:
    docling = described("""
[ask]
path = "/v1/status/poll/{id}"
longpoll = { query = { wait = "{hold}" }, most = 20 }
[read]
status = "task_status"
live = ["pending", "started"]
done = ["success"]
failed = ["failure"]
[result]
path = "/v1/result/{id}"
""")
    assert docling.calls.ask(Ref("t"), hold=5).url == "https://x.example/v1/status/poll/t?wait=5"
    done = seen(docling, {"task_status": "success"}, Ref("t"))
    assert (done.result_url or "").endswith("/v1/result/t")
    other = described("""
[submit]
path = "/v1/jobs/"
status_url = "header:Location"
[ask]
path = "/v1/jobs/{id}"
[read]
status = "status"
live = ["running"]
codes = { 410 = "failed" }
error = { code = "code" }
""")
    assert other.submissions.accepted(
        other.submissions.submit("", None), Answer(202, {"Location": "../jobs/j1"}, b"")
    ) == Ref("j1")
    expired = other.read(Ref("j1"), Answer(410, {}, b'{"code": "result_expired"}'))
    assert (expired.state, expired.error.code) == ("failed", "result_expired")


def test_forms_and_pages_by_link() -> None:
    api = described("""
[submit]
path = "/reports"
encode = "form"
body = { parameters = "{input}" }
id = "id"
[ask]
path = "/reports/{id}"
[read]
status = "s"
done = ["ok"]
[result]
url = "url"
next = { link = true }
""")
    call = api.submissions.submit("", {"term": 1, "flags": [True, "x"]})
    assert call.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert (
        call.body
        == b"parameters%5Bterm%5D=1&parameters%5Bflags%5D%5B%5D=true&parameters%5Bflags%5D%5B%5D=x"
    )
    first, rule = "https://x.example/r?page=1", api.calls.next_page()
    links = {"Link": '<https://x.example/r?page=1>; rel="prev", </r?page=2>; rel="next"'}
    assert rule.following(first, Answer(200, links, b"")) == "https://x.example/r?page=2"
    assert rule.following(first, Answer(200, {}, b"")) is None


# --- submissions that are not accepted


def test_a_submission_that_is_refused_or_lost() -> None:
    api = load("sync.so")
    call = api.submissions.submit("", {})
    with pytest.raises(ServiceError, match="bad video") as caught:
        api.submissions.accepted(call, Answer(422, {}, b'{"message": "bad video"}'))
    assert caught.value.status == 422
    for body in (b"", b"{}", b"<html>", b'{"id": ".."}', b'{"id": ""}'):
        with pytest.raises(ServiceError) as caught:
            api.submissions.accepted(call, Answer(201, {}, body))
        assert caught.value.code == "unreadable-answer"
    with pytest.raises(SetupError, match="idempotency key"):
        api.submissions.submit("", {}, "not allowed!")
    with pytest.raises(SetupError, match="does not say how to submit"):
        read(GOOD, "mine.toml").submissions.submit("x", {})
    with pytest.raises(SetupError, match="needs the address"):
        load("airflow").submissions.submit("etl", {})
    with pytest.raises(SetupError, match="kind"):
        load("flower").submissions.submit("", {})
    assert issubclass(Throttled, BadPoll)
    assert not issubclass(Crowded, BadPoll)


# --- hooks


class Doubting:
    """Says of each job that it is done, and signs with the time."""

    def __init__(self, form: Description) -> None:
        self.word = str(form.options["word"])

    def sign(self, call: Call, now: float) -> Call:
        return Call(call.method, call.url, {**call.headers, "X-At": f"{now:g}"}, call.body)

    def read(self, ref: Ref, answer: Answer, seen: Seen | None) -> Seen:
        return seen if seen is not None else Seen(state="done", word=self.word)


def test_a_hook_signs_and_reads_what_no_table_can_say() -> None:
    api = read(f'hook = "{__name__}:Doubting"\noptions = {{ word = "xml" }}\n{GOOD}', "mine.toml")
    assert api.signed(api.calls.ask(Ref("a")), None, 5.0).headers["X-At"] == "5"
    assert api.read(Ref("a"), Answer(200, {}, b"<state>ok</state>")).word == "xml"
    assert api.read(Ref("a"), Answer(200, {}, b'{"status": "running"}')).state == "live"
    with pytest.raises(BadPoll):
        api.read(Ref("a"), Answer(502, {}, b"<html>"))
    with pytest.raises(SetupError, match="cannot be loaded"):
        read(f'hook = "nothing.here:X"\n{GOOD}', "mine.toml")
