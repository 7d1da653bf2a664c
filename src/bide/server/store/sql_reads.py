"""The reads outside of transactions that every SQL database answers with the same query.

A backend runs the queries (`rows`). It overrides a read that it answers faster, for example from a cache.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

from bide.core.jobs.record import Job
from bide.server.store import (
    ALL_RECORDS,
    RECORDS,
    EventFilter,
    Filter,
    LogPage,
    Missing,
    RecordFilter,
    StoreUnavailable,
    UploadBytes,
    rollups,
    upload_rows,
)
from bide.server.store.job_search import JobSearch, SearchDialect
from bide.server.store.query_threads import QueryConnection, QueryThreads
from bide.server.store.rollups import LoadSample, RollupQuery
from bide.server.store.rows import EVENT_COLUMNS, event_of
from bide.server.store.transaction import TextTable
from bide.server.store.transactional_store import TransactionalStore, UploadFilter
from bide.server.upload_record import Upload

Rows = list[tuple[Any, ...]]
Condition = tuple[str, Iterable[Any]]  # of a WHERE clause, and its values
Reads = Literal["row", "page", "table"]
IDS_PER_QUERY = 500
LAST_CHARACTER = "\U0010ffff"
_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = uploads.id "
    "AND (CAST(? AS DOUBLE PRECISION) IS NULL OR j.finished_at IS NULL OR j.finished_at > ?))"
)
_TEXTS: dict[TextTable, str] = {
    "identity": "SELECT '', CAST(id AS TEXT) FROM store_id",
    "durations": "SELECT kind, sketch FROM durations",
    "log": "SELECT name, text FROM log_state",
    "workers": "SELECT name, state FROM workers WHERE seen_at > ? ORDER BY name",
}


class SqlReads(TransactionalStore):
    """A `TransactionalStore` on a SQL database."""

    dialect: ClassVar[SearchDialect]
    is_ready: ClassVar[str]  # the condition of the index for claims
    output_bytes: ClassVar[str]  # the query of the bytes of all results and files of a tenant's jobs
    queries: QueryThreads  # opened by `connect`

    @abstractmethod
    async def rows(self, sql: str, values: Sequence[Any] = (), *, reads: Reads = "row") -> Rows:
        """The rows of a query, which has a `?` per value. `reads` is how much it reads: a few rows by their key, a page of
        up to a thousand rows along an index, or perhaps the whole table.
        """

    @abstractmethod
    async def last_number(self) -> int:
        """The greatest number of an event that was used."""

    def search_dialect(self, connection: QueryConnection) -> SearchDialect:
        """The dialect of a query that begins now."""
        return self.dialect

    def _search(self, connection: QueryConnection, filter: Filter) -> JobSearch:
        return JobSearch(connection.rows, self.search_dialect(connection), filter)

    # --- jobs and events

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        sql = "SELECT 1 FROM keys WHERE tenant = ? AND kind = ? AND key = ?"
        return bool(await self.rows(sql, (tenant, kind, key)))

    async def find(self, filter: Filter) -> list[Job]:
        if not _is_searchable(filter):
            return []
        return await self.queries.run(lambda connection: self._search(connection, filter).find())

    async def ids(self, filter: Filter) -> list[str]:
        if not _is_searchable(filter):
            return []

        def read(connection: QueryConnection) -> list[str]:
            # In one snapshot: otherwise a job whose status changes between two ranges could be in neither.
            connection.rows(self.dialect.snapshot, ())
            try:
                return self._search(connection, filter).ids()
            finally:
                connection.begin(math.inf)  # also after the time limit
                with contextlib.suppress(StoreUnavailable):
                    connection.rows("ROLLBACK", ())

        return await self.queries.run(read)

    async def count(self, filter: Filter, most: int) -> int:
        if not _is_searchable(filter):
            return 0
        return await self.queries.run(lambda connection: self._search(connection, filter).count(most))

    async def statistics(self, query: RollupQuery) -> list[tuple[int, str, int]]:
        if any("\0" in text for text in (query.kind, query.queue) if text):
            return []
        return await self.queries.run(lambda connection: rollups.read(connection.rows, query))

    async def load(self) -> list[LoadSample]:
        return await self.queries.run(lambda connection: self._search(connection, Filter()).load())

    async def input(self, job_id: str) -> bytes:
        rows = await self.rows("SELECT input FROM inputs WHERE job_id = ?", (job_id,))
        return rows[0][0].encode() if rows else b"null"

    async def step(self, job_id: str, name: str) -> bytes | None:
        sql = "SELECT result FROM steps WHERE job_id = ? AND name = ?"
        rows = await self.rows(sql, (job_id, name))
        return rows[0][0].encode() if rows else None

    async def read_log(self, filter: EventFilter) -> LogPage:
        state = await self.texts("log")
        last = await self.last_number()
        conditions: list[Condition] = [("tenant = ? AND id > ?", [filter.tenant, filter.after])]
        if filter.until is not None:
            conditions.append(("id <= ?", [filter.until]))
        for column, values in (("job_id", filter.jobs), ("type", filter.types)):
            if len(values) == 1:
                conditions.append((f"{column} = ?", values))
            elif values:
                conditions.append((f"{column} IN ({_marks(values)})", values))
        where, found = _where(conditions)
        sql = f"SELECT {EVENT_COLUMNS} FROM events {where} ORDER BY id LIMIT ?"
        rows = await self.rows(sql, [*found, filter.limit], reads="page") if filter.limit else []
        return LogPage(state["epoch"], int(state["floor"]), last, [event_of(row) for row in rows])

    async def known(self, ids: Sequence[str]) -> set[str]:
        return await self._known("jobs", ids)

    async def texts(self, table: TextTable, filter: RecordFilter = ALL_RECORDS) -> dict[str, str]:
        if table not in RECORDS:
            return dict(await self.rows(_TEXTS[table], (filter.since,) if table == "workers" else ()))
        conditions: list[Condition] = [("collection = ?", [table]), ("name > ?", [filter.after])]
        if filter.tenant is not None:
            conditions.insert(0, ("tenant = ?", [filter.tenant]))
        if filter.names:
            conditions.append((f"name IN ({_marks(filter.names)})", filter.names))
        if filter.prefix:
            conditions.append(
                ("name >= ? AND name < ?", [filter.prefix, filter.prefix + LAST_CHARACTER])
            )
        if filter.before is not None:
            conditions.append(("name < ?", [filter.before]))
        where, values = _where(conditions)
        sql = f"SELECT name, text FROM records {where} ORDER BY name {'DESC' if filter.last else 'ASC'}"
        if filter.limit is not None:
            sql, values = f"{sql} LIMIT ?", [*values, filter.limit]
        return dict(await self.rows(sql, values, reads="table" if filter.limit is None else "page"))

    # --- uploads

    async def upload(self, upload_id: str) -> Upload | Missing:
        if "\0" in upload_id:  # not every database accepts it in a query
            return Missing()
        rows = await self.rows(f"SELECT {upload_rows.READ} FROM uploads WHERE id = ?", (upload_id,))
        if rows:
            return upload_rows.upload_of(rows[0])
        gone = await self.rows("SELECT tenant FROM tombstones WHERE id = ?", (upload_id,))
        return Missing(gone=True, tenant=gone[0][0]) if gone else Missing()

    async def uploads(self, filter: UploadFilter) -> list[Upload]:
        conditions: list[Condition] = []
        if filter.tenant is not None:
            conditions.append(("tenant = ?", [filter.tenant]))
        if filter.status is not None:
            conditions.append(("status = ?", [filter.status.value]))
        if filter.before is not None:
            conditions.append(("id < ?", [filter.before]))
        if filter.replica is not None:
            conditions.append(("status = 'UPLOADING' AND replica = ?", [filter.replica]))
        if filter.changed is not None:
            conditions.append(("updated_at <= ?", [filter.changed]))
        if filter.expired is not None:
            conditions.append((f"expires_at <= ? AND {_UNUSED}", [filter.expired, *[filter.ended] * 2]))
        where, values = _where(conditions)
        sql = f"SELECT {upload_rows.READ} FROM uploads {where}"
        if filter.replica is not None:
            sql += " ORDER BY updated_at"
        elif filter.tenant is not None:
            sql += " ORDER BY id DESC"
        if filter.limit is not None:
            sql, values = f"{sql} LIMIT ?", [*values, filter.limit]
        rows = await self.rows(sql, values, reads="table" if filter.tenant is None else "page")
        return [upload_rows.upload_of(row) for row in rows]

    async def upload_bytes(self) -> UploadBytes:
        (sums,) = await self.rows(upload_rows.SUMS, reads="table")
        return UploadBytes(*map(int, sums))

    async def stored_bytes(self, tenant: str) -> int:
        ((uploads,),) = await self.rows(upload_rows.TENANT_SUM, (tenant,), reads="page")
        ((outputs,),) = await self.rows(self.output_bytes, (tenant,), reads="table")
        return int(uploads) + int(outputs)

    async def waiting_by_tenant(self, queue: str) -> dict[str, int]:
        sql = f"SELECT tenant, count(*) FROM jobs WHERE queue = ? AND {self.is_ready} GROUP BY tenant"
        return dict(await self.rows(sql, (queue,), reads="table"))

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        return await self._known("uploads", ids)

    async def _known(self, table: str, ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for begin in range(0, len(ids), IDS_PER_QUERY):
            some = ids[begin : begin + IDS_PER_QUERY]
            sql = f"SELECT id FROM {table} WHERE id IN ({_marks(some)})"
            found.update(known for (known,) in await self.rows(sql, some, reads="page"))
        return found


def _is_searchable(filter: Filter) -> bool:
    """Whether a job can match: no stored text contains NUL."""
    texts = [filter.kind, filter.queue, filter.code, *(t.field for t in filter.terms)]
    return not any("\0" in text for text in texts if text) and not any(
        "\0" in term.value for term in filter.terms
    )


def _where(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """The WHERE clause and its values."""
    text = " AND ".join(condition for condition, _ in conditions)
    return f"WHERE {text}" if text else "", [v for _, values in conditions for v in values]


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
