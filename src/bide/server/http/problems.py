"""GET /problems and /problems/{code}: the meaning and the remedy of each problem, as JSON and as a page."""

from __future__ import annotations

import msgspec

from bide.core.errors import NotFound, Problem, problems
from bide.server.http.html import escape, html_response, wants_html
from bide.server.http.request import HttpRequest, Response, object_response
from bide.server.http.routing import HttpOperation, Parameter, ResponseSpec


class ProblemInfo(msgspec.Struct):
    code: str
    status: int
    title: str
    retryable: bool
    meaning: str
    remedy: str


class ProblemList(msgspec.Struct):
    problems: list[ProblemInfo]


def _info(problem: type[Problem]) -> ProblemInfo:
    return ProblemInfo(
        problem.code, problem.status, problem.title, problem.retryable, problem.meaning, problem.remedy
    )


ALL = {problem.code: _info(problem) for problem in problems()}


async def one(request: HttpRequest) -> Response:
    code = request.args[0]
    info = ALL.get(code)
    if info is None:
        raise NotFound(f"problem {code[:100]!r} does not exist; see /problems for the list")
    if not wants_html(request.header(b"accept")):
        return object_response(info)
    retry = (
        "The same request may succeed later." if info.retryable else "The same request will fail again."
    )
    body = (
        f"<p><code>{info.code}</code>, status {info.status}</p><h2>What it means</h2><p>{escape(info.meaning)}</p>"
        f"<h2>What to do</h2><p>{escape(info.remedy)}</p><p>{retry}</p>"
        f'<p><a href="{request.base}/problems">All problems</a></p>'
    )
    return html_response(info.title, body)


async def every(request: HttpRequest) -> Response:
    if not wants_html(request.header(b"accept")):
        return object_response(ProblemList(list(ALL.values())))
    rows = "".join(
        f'<tr><td>{p.status}</td><td><a href="{request.base}/problems/{p.code}">{p.code}</a></td>'
        f"<td>{escape(p.meaning)}</td></tr>"
        for p in ALL.values()
    )
    head = "<tr><th>Status</th><th>Code</th><th>What it means</th></tr>"
    return html_response("Problems", f"<table>{head}{rows}</table>")


_TYPES = ("application/json", "text/html")

OPERATIONS = [
    HttpOperation(
        "GET",
        "/problems",
        every,
        "listProblems",
        "List the problems that a response can report",
        "problems",
        scope=None,
        responses=(ResponseSpec(200, "The problems.", ProblemList, content_types=_TYPES),),
        example="$BASE/problems",
    ),
    HttpOperation(
        "GET",
        "/problems/{code}",
        one,
        "getProblem",
        "Get the meaning and the remedy of a problem",
        "problems",
        description="The `type` of a problem document is this URL.",
        parameters=(
            Parameter("code", "path", "The code of the problem.", {"enum": [*ALL]}, required=True),
        ),
        scope=None,
        responses=(ResponseSpec(200, "The problem.", ProblemInfo, content_types=_TYPES),),
        problems=(NotFound,),
        example="$BASE/problems/gone",
    ),
]
