"""Statistics are exact after kill -9, because each count is in the transaction of its job."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.serving import Serving
from tests.waiting import until

JOBS = 60


def test_every_job_counts_once_over_two_kills(tmp_path: Path) -> None:
    service = Serving(tmp_path, env={"LONGEST": "0"})
    service.start()
    ids: list[str] = []
    try:
        for begin in range(0, JOBS, 20):
            batch = [{"kind": "work", "input": {"number": begin + n}} for n in range(20)]
            ids += [job["jobId"] for job in service.ask("POST", "/jobs/batch", {"jobs": batch})["jobs"]]
            until(lambda: service.ask("GET", "/stats")["total"]["done"] >= begin + 5)  # noqa: B023
            service.kill()
            service.start()
        for job_id in ids:
            assert service.ended(job_id)["status"] == "DONE"
        total = service.ask("GET", "/stats")["total"]
        assert (total["submitted"], total["done"], total["failed"]) == (JOBS, JOBS, {})
        assert total["started"] >= JOBS, "an attempt that was killed has started, too"
        found = service.ask("GET", "/jobs?q=kind:work%20status:DONE&count=true&limit=1")
        assert found["count"] == {"value": JOBS, "more": False}
    finally:
        service.kill()
