"""Repeated short waits still see the end of a job: its age is kept between waits."""

from __future__ import annotations

import time

import pytest

from bide import Client, WaitTimeout
from bide.lab.vendor import Vendor


@pytest.mark.parametrize("ours", [True, False])
def test_many_short_waits_find_the_end_like_a_long_one(ours: bool) -> None:
    with (
        Vendor(takes=lambda rng: 1.5) as vendor,
        Client(vendor.url, "k", api="sync.so", limit="100/1s") as client,
    ):
        job = client.submit("lipsync", {})
        if not ours:
            job = client.job(job.id)  # of unknown age
        until = time.monotonic() + 30.0
        while job.latest is None or not job.latest.status.terminal:
            assert time.monotonic() < until, f"{job} after {job.requests} requests"
            try:
                job.result(timeout=0.2)
            except WaitTimeout:
                continue
        assert job.requests < 20
