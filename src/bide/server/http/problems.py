"""GET /problems and /problems/{code}: what a problem means and what to do about it, for people and for programs."""

from __future__ import annotations

import msgspec

from bide.core.errors import NotFound, Problem, problems
from bide.server.http.exchange import Answer, Request, object_answer
from bide.server.http.operations import Operation, Parameter, Reply
from bide.server.http.page import escape, html_answer, wants_html


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


async def one(request: Request) -> Answer:
    code = request.args[0]
    info = ALL.get(code)
    if info is None:
        raise NotFound(f"there is no problem {code[:100]!r}; /problems lists them all")
    if not wants_html(request.header(b"accept")):
        return object_answer(info)
    again = (
        "The same request may succeed later." if info.retryable else "The same request will fail again."
    )
    body = (
        f"<p><code>{info.code}</code>, status {info.status}</p><h2>What it means</h2><p>{escape(info.meaning)}</p>"
        f"<h2>What to do</h2><p>{escape(info.remedy)}</p><p>{again}</p>"
        f'<p><a href="{request.base}/problems">All problems</a></p>'
    )
    return html_answer(info.title, body)


async def every(request: Request) -> Answer:
    if not wants_html(request.header(b"accept")):
        return object_answer(ProblemList(list(ALL.values())))
    rows = "".join(
        f'<tr><td>{p.status}</td><td><a href="{request.base}/problems/{p.code}">{p.code}</a></td>'
        f"<td>{escape(p.meaning)}</td></tr>"
        for p in ALL.values()
    )
    head = "<tr><th>Status</th><th>Code</th><th>What it means</th></tr>"
    return html_answer("Problems", f"<table>{head}{rows}</table>")


_TYPES = ("application/json", "text/html")

OPERATIONS = [
    Operation(
        "GET",
        "/problems",
        every,
        "listProblems",
        "Every problem that an answer can carry",
        "problems",
        replies=(Reply(200, "The problems.", ProblemList, content_types=_TYPES),),
        example="$BASE/problems",
    ),
    Operation(
        "GET",
        "/problems/{code}",
        one,
        "getProblem",
        "What a problem means, and what to do",
        "problems",
        description="A problem document's `type` leads here.",
        parameters=(
            Parameter("code", "path", "The problem's code.", {"type": "string"}, required=True),
        ),
        replies=(Reply(200, "The problem.", ProblemInfo, content_types=_TYPES),),
        problems=(NotFound,),
        example="$BASE/problems/gone",
    ),
]
