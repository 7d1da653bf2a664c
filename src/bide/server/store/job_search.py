"""Finds the jobs of a list in a SQL database: the ids along indexes that are sorted by id, then the rows of one page.

The index `jobs_facets` has the columns tenant, status, kind, queue and id; `jobs_code` also has the code of the error after
the tenant; the table `search_terms` has tenant, value, field, kind, queue and job. So all jobs of one status, kind and
queue, or with one term of one kind and queue, are a sorted range. A list is made of such ranges:

1. The distinct (status, kind, queue) that the filter selects are found by skipping along the index. There are few of them.
2. For each of them the ranges of all terms are intersected. If a range is small, its ids are looked up in the others;
   otherwise the ranges are merged. So an empty intersection costs one pass over the ranges, not over the table.
3. A page is the best `limit` ids of all intersections. Each later one is only read up to the worst id found so far.

Every range starts with the tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from bide.core.errors import QueryTimeout
from bide.core.jobs.record import TERMINAL, Job, Status
from bide.core.wire.http import ID_CHARACTERS
from bide.server.store import RUNNING, SHORTEST, Filter, Position, Term
from bide.server.store.query_threads import release
from bide.server.store.rollups import LoadSample
from bide.server.store.rows import COLUMNS, job_of

Rows = list[tuple[Any, ...]]
Run = Callable[[str, Sequence[Any]], Rows]
LOWEST, HIGHEST = "", "~"  # below and above every id
SMALL = 500  # ids that are looked up in the other ranges at once
MOST_RANGES = 5000
TOGETHER = 40  # ranges that one statement reads
FEW = 5000  # jobs that are sorted by duration in memory
PREPARING = "the indexes of the stored jobs are being built after an upgrade: send the request again in some minutes"
_LABELS = ("label.", "label/")  # every field of a label is between these
_STATUSES = tuple(status.value for status in Status)
Facet = tuple[str, str, str]  # status, kind, queue
Bounds = tuple[str, str]  # the smallest id, and the end


class SearchDialect(NamedTuple):
    """What differs between the databases. Every query has a `?` per value."""

    code: str  # the expression of the error's code, as in the index
    # The name of an index that the query must use follows this; empty: the planner finds that no other one is cheaper.
    indexed_by: str
    # Whether sorted ranges are merged by INTERSECT; otherwise by joins between these statements.
    intersect: bool
    medium: int  # up to this many ids are looked up if the other ranges are larger
    # Whether a statement costs so much more than its rows that one statement finds what several would find.
    one_statement: bool = False
    # Ends a subquery that must look up one id, so that the planner does not turn it into a join.
    lookup: str = ""
    before_merge: str = ""
    after_merge: str = ""
    # The same for walks along an index that is sorted by duration: they must not sort another range.
    before_walk: str = ""
    after_walk: str = ""
    snapshot: str = "BEGIN"  # begins a transaction whose queries all see the same rows
    # The condition of `jobs_facets` and `jobs_longest`, if they have one. While these are built, jobs before the id
    # `unlisted` are not in them, and the indexes `missing` do not exist.
    listed: str = ""
    unlisted: str = ""
    missing: frozenset[str] = frozenset()


class Range(NamedTuple):
    """A sorted range of an index: the ids of jobs that have something in common."""

    table: str
    id: str  # its column
    equal: tuple[tuple[str, Any], ...]  # columns or expressions, and their values
    by: str = ""  # the name of the index
    also: str = ""  # a condition that the partial index needs

    def select(self, dialect: SearchDialect, bounds: Bounds, alias: str = "r") -> tuple[str, list[Any]]:
        """The query of its ids without an order, and the values."""
        hint = f" {dialect.indexed_by} {self.by}" if dialect.indexed_by and self.by else ""
        where, values = self.conditions(bounds)
        return f"SELECT {alias}.{self.id} AS id FROM {self.table} AS {alias}{hint} WHERE {where}", values

    def order(self, direction: str) -> str:
        return f"ORDER BY {self.id} {direction}"

    def has(self, dialect: SearchDialect, outer: str) -> tuple[str, list[Any]]:
        """The condition that the job with the id `outer` is in the range."""
        hint = f" {dialect.indexed_by} {self.by}" if dialect.indexed_by and self.by else ""
        also = f"{self.also} AND " if self.also else ""
        where = " AND ".join(
            f"p.{column} = ?" if "(" not in column else f"{column} = ?" for column, _ in self.equal
        )
        found = f"SELECT 1 FROM {self.table} AS p{hint} WHERE {also}{where} AND p.{self.id} = {outer}"
        return f"EXISTS ({found}{dialect.lookup})", [value for _, value in self.equal]

    def conditions(self, bounds: Bounds, prefix: str = "") -> tuple[str, list[Any]]:
        """The conditions of the range, and their values. Only `jobs` has the columns of expressions, so these need no
        prefix.
        """
        found = [self.also] if self.also else []
        found += [f"{column if '(' in column else prefix + column} = ?" for column, _ in self.equal]
        found += [f"{prefix}{self.id} >= ?", f"{prefix}{self.id} < ?"]
        return " AND ".join(found), [*(value for _, value in self.equal), *bounds]


class JobSearch:
    """Runs the queries of one list; call it in a thread."""

    def __init__(self, run: Run, dialect: SearchDialect, filter: Filter) -> None:
        self._run = run
        self._dialect = dialect
        self._filter = filter

    # --- results

    def find(self) -> list[Job]:
        filter = self._filter
        found: list[Job] = []
        while True:
            wanted = filter.limit - len(found)
            search = JobSearch(self._run, self._dialect, replace(filter, limit=wanted))
            page = search._longest() if filter.order == "longest" else [(i, None) for i in search._ids()]
            jobs = self._jobs([job_id for job_id, _ in page])
            found += [jobs[job_id] for job_id, _ in page if job_id in jobs]
            if len(found) >= filter.limit or len(page) < wanted:
                return found
            # Some jobs were removed since their ids were read.
            filter = replace(filter, after=Position(*page[-1]))

    def ids(self) -> list[str]:
        """The ids of the page, in order; not in the order `longest`."""
        return self._ids()

    def count(self, most: int) -> int:
        filter = replace(self._filter, order="newest", after=None, limit=most)
        search = JobSearch(self._run, self._dialect, filter)
        if any(not term.field for term in filter.terms):  # a job may match a text twice
            return len(search._ids())
        total = 0
        for ranges, bounds in search._parts():
            text, values = search._intersection(ranges, bounds, "DESC", most - total)
            (row,) = search._merged(f"SELECT count(*) FROM ({text}) AS counted", values, ranges)
            total += int(row[0])
            if total >= most:
                return most
        return total

    def load(self) -> list[LoadSample]:
        """How many jobs of each tenant, kind and queue wait and run."""
        hint = f" {self._dialect.indexed_by} jobs_facets" if self._dialect.indexed_by else ""
        listed = f"{self._dialect.listed} AND " if self._dialect.listed else ""
        sql = (
            f"SELECT kind, queue, count(*) FROM jobs{hint} WHERE {listed}tenant = ? AND status = ? "
            "GROUP BY tenant, status, kind, queue"
        )
        found: list[LoadSample] = []
        for tenant in self._tenants():
            counts: dict[tuple[str, str], list[int]] = {}
            for status in (Status.PENDING, Status.RETRYING, Status.PROCESSING):
                for kind, queue, number in self._run(sql, (tenant, status.value)):
                    counts.setdefault((kind, queue), [0, 0])[status is Status.PROCESSING] += number
            found += [LoadSample(tenant, *pair, *numbers) for pair, numbers in counts.items()]
        return found

    def _jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        if not ids:
            return {}
        found: dict[str, Job] = {}
        rows = self._run(f"SELECT {COLUMNS} FROM jobs WHERE id IN ({_marks(ids)})", ids)
        for number, job in enumerate(map(job_of, rows)):
            found[job.id] = job
            if number % 20 == 19:
                release()
        return found

    def _ids(self) -> list[str]:
        """The ids of the page, in order."""
        filter = self._filter
        newest = filter.order == "newest"
        direction = "DESC" if newest else "ASC"
        best: list[str] = []
        parts: Iterable[tuple[list[Range], Bounds]] = self._parts()
        if self._dialect.one_statement:
            parts = list(parts)
            best = self._best_of_single([part for part in parts if len(part[0]) == 1], direction)
            parts = [part for part in parts if len(part[0]) > 1]
        for ranges, (low, high) in parts:
            if len(best) == filter.limit:
                low, high = (max(low, best[-1]), high) if newest else (low, min(high, best[-1]))  # noqa: PLW2901
            if low >= high:
                continue
            text, values = self._intersection(ranges, (low, high), direction, filter.limit)
            rows = self._merged(text, values, ranges)
            if rows:
                best = sorted({*best, *(row[0] for row in rows)}, reverse=newest)[: filter.limit]
        return best

    def _best_of_single(self, parts: list[tuple[list[Range], Bounds]], direction: str) -> list[str]:
        """The first ids of parts that have one range each."""
        limit, found = self._filter.limit, set[str]()
        for begin in range(0, len(parts), TOGETHER):
            texts: list[str] = []
            values: list[Any] = []
            for (one,), bounds in parts[begin : begin + TOGETHER]:
                text, some = one.select(self._dialect, bounds)
                texts.append(f"({text} {one.order(direction)} LIMIT ?)")
                values += [*some, limit]
            found.update(row[0] for row in self._run(" UNION ALL ".join(texts), values))
        return sorted(found, reverse=direction == "DESC")[:limit]

    # --- ranges

    def _parts(self) -> Iterator[tuple[list[Range], Bounds]]:
        """What the list is made of: ranges to intersect, and the bounds of their ids."""
        number = 0
        for tenant in self._tenants():
            for terms, bounds in self._alternatives():
                # First those that are not listed, because they may become so meanwhile. No old job has terms before that.
                if self._dialect.unlisted and not terms:
                    low, high = bounds
                    if not self._is_missing():
                        high = min(high, self._dialect.unlisted)
                    yield from (([one], (low, high)) for one in self._unlisted(tenant) if low < high)
                    if self._is_missing():
                        continue
                for ranges in self._of_tenant(tenant, terms):
                    number += 1
                    if number > MOST_RANGES:
                        raise QueryTimeout(
                            f"the query selects more than {MOST_RANGES} combinations of status, kind and queue: add "
                            "kind, queue or status"
                        )
                    yield ranges, bounds

    def _tenants(self) -> Iterable[str]:
        if self._filter.tenant is not None:
            return [self._filter.tenant]
        if self._dialect.unlisted:
            raise QueryTimeout(PREPARING)
        return list(self._distinct("jobs", "tenant", (), "jobs_facets", self._dialect.listed))

    def _unlisted(self, tenant: str) -> Iterator[Range]:
        """The jobs that are not in the index of lists yet, along the indexes of the earlier release."""
        filter = self._filter
        for status in self._statuses():
            equal = [("tenant", tenant), ("status", status)]
            equal += [
                (n, v) for n, v in (("kind", filter.kind), ("queue", filter.queue)) if v is not None
            ]
            if filter.code is not None:
                equal.append((self._dialect.code, filter.code))
            index, also = "sqlite_autoindex_jobs_1", "TRUE" if self._is_missing() else "listed IS NULL"
            if status != Status.DONE:
                index, also = "jobs_status", f"status <> 'DONE' AND {also}"
            elif filter.code is not None:  # such a job has no error
                continue
            elif filter.kind is not None:
                index = "jobs_kind"
            yield Range("jobs", "id", tuple(equal), index, also)

    def _alternatives(self) -> Iterator[tuple[list[Term], Bounds]]:
        """The terms to find and the bounds of the ids: one alternative for each way to read the free text."""
        filter = self._filter
        first, end = filter.first or LOWEST, filter.end or HIGHEST
        if filter.after is not None and filter.order == "newest":
            end = min(end, filter.after.id)
        elif filter.after is not None and filter.order == "oldest":
            first = max(first, filter.after.id + "\x01")
        options: list[list[Term | Bounds]] = []
        for term in filter.terms:
            ways: list[Term | Bounds] = [term]
            prefix = term.value.upper()
            if not term.field and len(prefix) <= 26 and ID_CHARACTERS.issuperset(prefix):
                ways.append((prefix, prefix + HIGHEST))
            options.append(ways)
        for chosen in product(*options):
            low = max([first, *(way[0] for way in chosen if isinstance(way, tuple))])
            high = min([end, *(way[1] for way in chosen if isinstance(way, tuple))])
            if low < high:
                yield [way for way in chosen if isinstance(way, Term)], (low, high)

    def _of_tenant(self, tenant: str, terms: Sequence[Term]) -> Iterator[list[Range]]:
        if not terms:
            yield from ([self._facet(tenant, facet)] for facet in self._facets(tenant))
            return
        # By kind and queue: the ranges of each term, one per field that has the value.
        found: dict[tuple[str, str], list[list[Range]]] | None = None
        for term in terms:
            ranges = self._term_ranges(tenant, term)
            if found is None:
                found = {pair: [some] for pair, some in ranges.items()}
            else:
                found = {pair: [*lists, ranges[pair]] for pair, lists in found.items() if pair in ranges}
        assert found is not None
        if not (self._filter.status or self._filter.code is not None):
            for lists in found.values():
                yield from map(list, product(*lists))
            return
        if self._is_missing():
            raise QueryTimeout(PREPARING)
        statuses = self._statuses()
        facets = (
            {(status, *pair) for status in statuses for pair in found}
            if self._filter.code is None
            else set(self._facets(tenant))
        )
        for facet in sorted(facets):
            for chosen in product(*found.get(facet[1:], ())) if facet[1:] in found else ():
                yield [self._facet(tenant, facet), *chosen]

    def _facet(self, tenant: str, facet: Facet) -> Range:
        status, kind, queue = facet
        equal = (("status", status), ("kind", kind), ("queue", queue))
        code = self._filter.code
        if code is None:
            return Range("jobs", "id", (("tenant", tenant), *equal), "jobs_facets", self._dialect.listed)
        columns = (("tenant", tenant), (self._dialect.code, code), *equal)
        return Range("jobs", "id", columns, "jobs_code", self._code_condition)

    def _is_missing(self) -> bool:
        """Whether the index of the filter does not exist yet."""
        index = "jobs_facets" if self._filter.code is None else "jobs_code"
        return index in self._dialect.missing

    @property
    def _code_condition(self) -> str:
        """The condition of `jobs_code`."""
        listed = self._dialect.listed
        return f"error IS NOT NULL AND {listed}" if listed else "error IS NOT NULL"

    def _statuses(self) -> list[str]:
        return [s for s in _STATUSES if not self._filter.status or Status(s) in self._filter.status]

    def _facets(self, tenant: str) -> Iterator[Facet]:
        """The (status, kind, queue) that the filter selects and that exist."""
        filter = self._filter
        begin: tuple[tuple[str, Any], ...] = (("tenant", tenant),)
        index, also = "jobs_facets", self._dialect.listed
        if filter.code is not None:
            begin, index, also = (
                (*begin, (self._dialect.code, filter.code)),
                "jobs_code",
                self._code_condition,
            )
        if self._dialect.one_statement and filter.kind is None:
            statuses, columns = self._statuses(), ("status", "kind", "queue")
            for status, kind, queue in self._combinations("jobs", columns, begin, also):
                if status in statuses and filter.queue in (None, queue):
                    yield status, kind, queue
            return
        for status in self._statuses():
            known = (*begin, ("status", status))
            kinds = (
                self._distinct("jobs", "kind", known, index, also)
                if filter.kind is None
                else [filter.kind]
            )
            for kind in kinds:
                of_kind = (*known, ("kind", kind))
                queues = (
                    self._distinct("jobs", "queue", of_kind, index, also)
                    if filter.queue is None
                    else [filter.queue]
                )
                yield from ((status, kind, queue) for queue in queues)

    def _term_ranges(self, tenant: str, term: Term) -> dict[tuple[str, str], list[Range]]:
        """The ranges of a term by kind and queue."""
        filter, table = self._filter, "search_terms"
        value = (("tenant", tenant), ("value", term.value))
        fields = (
            [term.field] if term.field else list(self._distinct(table, "field", value, between=_LABELS))
        )
        found: dict[tuple[str, str], list[Range]] = {}
        for field in fields:
            of_field = (*value, ("field", field))
            if self._dialect.one_statement and filter.kind is None:
                for kind, queue in self._combinations(table, ("kind", "queue"), of_field):
                    if filter.queue in (None, queue):
                        equal = (*of_field, ("kind", kind), ("queue", queue))
                        found.setdefault((kind, queue), []).append(Range(table, "job_id", equal))
                continue
            kinds = self._distinct(table, "kind", of_field) if filter.kind is None else [filter.kind]
            for kind in kinds:
                of_kind = (*of_field, ("kind", kind))
                queues = (
                    self._distinct(table, "queue", of_kind) if filter.queue is None else [filter.queue]
                )
                for queue in queues:
                    equal = (*of_kind, ("queue", queue))
                    found.setdefault((kind, queue), []).append(Range(table, "job_id", equal))
        return found

    def _distinct(
        self,
        table: str,
        column: str,
        known: tuple[tuple[str, Any], ...],
        index: str = "",
        also: str = "",
        between: tuple[str, str] | None = None,
    ) -> Iterator[str]:
        """The values of a column, each found by one step along the index."""
        hint = f" {self._dialect.indexed_by} {index}" if self._dialect.indexed_by and index else ""
        conditions = [*([also] if also else []), *(f"{name} = ?" for name, _ in known), f"{column} > ?"]
        values = [value for _, value in known]
        last = "" if between is None else between[0]
        if between is not None:
            conditions.append(f"{column} < ?")
        sql = f"SELECT {column} FROM {table}{hint} WHERE {' AND '.join(conditions)} ORDER BY {column} LIMIT 1"
        while rows := self._run(sql, [*values, last, *([] if between is None else [between[1]])]):
            last = rows[0][0]
            yield last

    def _combinations(
        self, table: str, columns: tuple[str, ...], known: tuple[tuple[str, Any], ...], also: str = ""
    ) -> Rows:
        """The combinations of values of several columns: like `_distinct`, with one statement."""
        names = ", ".join(columns)
        where = " AND ".join([*([also] if also else []), *(f"{name} = ?" for name, _ in known)])
        after = f"({names}) > ({', '.join(f'f.{name}' for name in columns)})"
        select, order = f"SELECT {names} FROM {table} WHERE {where}", f"ORDER BY {names} LIMIT 1"
        sql = (
            f"WITH RECURSIVE f AS (({select} {order}) UNION ALL SELECT n.* FROM f CROSS JOIN LATERAL "
            f"({select} AND {after} {order}) AS n) SELECT {names} FROM f LIMIT {MOST_RANGES + 1}"
        )
        return self._run(sql, [value for _, value in known] * 2)

    # --- intersections

    def _intersection(
        self, ranges: list[Range], bounds: Bounds, direction: str, limit: int
    ) -> tuple[str, list[Any]]:
        """The query of the ids that are in all ranges. Sorts `ranges`: the first is the smallest, or all are merged."""
        dialect = self._dialect
        if len(ranges) == 1:
            text, values = ranges[0].select(dialect, bounds)
            return f"{text} {ranges[0].order(direction)} LIMIT ?", [*values, limit]
        if not self._smallest_first(ranges, bounds):
            return self._merge(ranges, bounds, direction, limit)
        text, values = ranges[0].select(dialect, bounds)
        for other in ranges[1:]:
            condition, more = other.has(dialect, f"r.{ranges[0].id}")
            text, values = f"{text} AND {condition}", [*values, *more]
        return f"{text} {ranges[0].order(direction)} LIMIT ?", [*values, limit]

    def _smallest_first(self, ranges: list[Range], bounds: Bounds) -> bool:
        """Whether a range is so small that its ids are looked up in the others."""
        for most in (SMALL, self._dialect.medium):
            sizes = [self._size(one, bounds, most) for one in ranges]
            if min(sizes) < most:
                smallest = sizes.index(min(sizes))
                ranges.insert(0, ranges.pop(smallest))
                return most == SMALL or max(sizes) == most
        return False

    def _size(self, one: Range, bounds: Bounds, most: int) -> int:
        text, values = one.select(self._dialect, bounds)
        # With the order, the planner uses the same index as for the ids.
        ordered = f"{text} {one.order('DESC')} LIMIT ?"
        return int(self._run(f"SELECT count(*) FROM ({ordered}) AS counted", [*values, most])[0][0])

    def _merge(
        self, ranges: list[Range], bounds: Bounds, direction: str, limit: int
    ) -> tuple[str, list[Any]]:
        if self._dialect.intersect:
            selects = [one.select(self._dialect, bounds) for one in ranges]
            values = [value for _, some in selects for value in some]
            text = " INTERSECT ".join(text for text, _ in selects)
            return f"{text} ORDER BY id {direction} LIMIT ?", [*values, limit]
        # One join without subqueries: so PostgreSQL knows that ids are unique, and need not keep them.
        places = [f"{one.table} AS m{n}" for n, one in enumerate(ranges)]
        equal = [f"m{n}.{one.id} = m0.{ranges[0].id}" for n, one in enumerate(ranges) if n]
        parts = [one.conditions(bounds, f"m{n}.") for n, one in enumerate(ranges)]
        where = " AND ".join([*equal, *(condition for condition, _ in parts)])
        order = f"ORDER BY m0.{ranges[0].id} {direction} LIMIT ?"
        text = f"SELECT m0.{ranges[0].id} AS id FROM {' CROSS JOIN '.join(places)} WHERE {where} {order}"
        return text, [*(value for _, some in parts for value in some), limit]

    def _merged(self, text: str, values: Sequence[Any], ranges: Sequence[Range]) -> Rows:
        """The rows of an intersection."""
        merges = " CROSS JOIN " in text and bool(self._dialect.before_merge) and len(ranges) > 1
        if not merges:
            return self._run(text, values)
        self._run(self._dialect.before_merge, ())
        try:
            return self._run(text, values)
        finally:
            self._run(self._dialect.after_merge, ())

    # --- by duration

    def _longest(self) -> list[tuple[str, float | None]]:
        """The ids and ranks of the page."""
        filter = self._filter
        if (filter.terms or filter.code is not None) and self.count(FEW + 1) <= FEW:
            few = replace(filter, order="newest", after=None, limit=FEW)
            return self._sorted(JobSearch(self._run, self._dialect, few)._ids())
        if self._dialect.unlisted:
            raise QueryTimeout(PREPARING)
        best: list[tuple[float, str]] = []
        if self._dialect.before_walk:
            self._run(self._dialect.before_walk, ())
        try:
            for rank, status, tenant, conditions, values in self._duration_parts():
                best += self._ranked(rank, status, tenant, conditions, values)
                best = sorted(set(best), reverse=True)[: filter.limit]
        finally:
            if self._dialect.after_walk:
                self._run(self._dialect.after_walk, ())
        return [(job_id, rank) for rank, job_id in best]

    def _duration_parts(self) -> Iterator[tuple[str, str, str, str, list[Any]]]:
        filter = self._filter
        for tenant in self._tenants():
            for terms, bounds in self._alternatives():
                conditions, values = ["id >= ?", "id < ?"], [*bounds]
                if filter.code is not None:
                    conditions.append(f"{self._dialect.code} = ?")
                    values.append(filter.code)
                for term in terms:
                    fields = "p.field = ?" if term.field else "p.field > ? AND p.field < ?"
                    conditions.append(
                        f"EXISTS (SELECT 1 FROM search_terms AS p WHERE p.tenant = jobs.tenant AND p.value = ? AND {fields} "
                        f"AND p.kind = jobs.kind AND p.queue = jobs.queue AND p.job_id = jobs.id{self._dialect.lookup})"
                    )
                    values += [term.value, *([term.field] if term.field else _LABELS)]
                where = " AND ".join(conditions)
                for status in self._statuses():
                    if status == Status.PROCESSING:
                        yield f"{RUNNING!r} - started_at", status, tenant, where, values
                    elif Status(status) in TERMINAL:
                        yield "finished_at - started_at", status, tenant, where, values

    def _ranked(
        self, rank: str, status: str, tenant: str, where: str, values: Sequence[Any]
    ) -> list[tuple[float, str]]:
        filter = self._filter
        ended = status != Status.PROCESSING
        index = "jobs_longest" if ended else "jobs_facets"
        hint = f" {self._dialect.indexed_by} {index}" if self._dialect.indexed_by else ""
        only = f"{rank} >= {SHORTEST}" if ended else "started_at IS NOT NULL"
        if self._dialect.listed:
            only = f"{only} AND {self._dialect.listed}"
        last = filter.after
        after, position = "", []
        if last is not None and last.rank is not None:
            after, position = (
                f" AND ({rank} < ? OR ({rank} = ? AND id < ?)) AND {rank} <= ?",
                [*(last.rank, last.rank, last.id, last.rank)],
            )
        found: list[tuple[float, str]] = []
        columns = "tenant, status, kind, queue"
        order = (
            f"ORDER BY {columns.replace(',', ' DESC,')} DESC, {rank} DESC, id DESC"
            if ended
            else (f"ORDER BY {rank} DESC, id DESC")
        )
        sql = (
            f"SELECT {rank}, id FROM jobs{hint} WHERE tenant = ? AND status = ? AND kind = ? AND queue = ? AND {only} "
            f"AND {where}{after} {order} LIMIT ?"
        )
        facets = replace(filter, status=frozenset({Status(status)}))
        every = list(JobSearch(self._run, self._dialect, facets)._facets(tenant))
        together = TOGETHER if self._dialect.one_statement else 1
        for begin in range(0, len(every), together):
            some = every[begin : begin + together]
            text = sql if len(some) == 1 else " UNION ALL ".join([f"({sql})"] * len(some))
            given = [[tenant, *facet, *values, *position, filter.limit] for facet in some]
            found += self._run(text, [value for one in given for value in one])
        return found

    def _sorted(self, ids: Sequence[str]) -> list[tuple[str, float | None]]:
        ranked: list[tuple[float, str]] = []
        sql = "SELECT id, status, started_at, finished_at FROM jobs WHERE id IN ({})"
        for begin in range(0, len(ids), 500):
            some = ids[begin : begin + 500]
            for job_id, status, started, finished in self._run(sql.format(_marks(some)), some):
                if started is None:
                    continue
                if status == Status.PROCESSING:
                    ranked.append((RUNNING - started, job_id))
                elif finished is not None and finished - started >= SHORTEST:
                    ranked.append((finished - started, job_id))
        last = self._filter.after
        if last is not None and last.rank is not None:
            ranked = [one for one in ranked if one < (last.rank, last.id)]
        return [(i, rank) for rank, i in sorted(ranked, reverse=True)[: self._filter.limit]]


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
