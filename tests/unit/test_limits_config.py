"""The table [limits] of bide.toml, and what applies to a tenant and a kind."""

from __future__ import annotations

from typing import Any

import pytest

from bide.core.jobs.fair import Weights
from bide.core.pacing.budget import Limit
from bide.server.config import KindLimits, LimitsConfig, TenantLimits


def test_a_tenant_replaces_the_defaults_that_it_names() -> None:
    limits = LimitsConfig.read(
        {
            "submit": "100/1m",
            "waiting": 1000,
            "kinds": {"transcode": {"submit": "10/1m:5", "running": 4}},
            "tenants": {
                "acme": {
                    "waiting": "unlimited",
                    "weight": 3,
                    "kinds": {"transcode": {"running": 20}, "ocr": {"waiting": 7}},
                }
            },
        }
    )
    assert limits.of("other") == limits.default
    assert limits.default.submit == limits.of("acme").submit == Limit(100, 60)
    assert limits.default.waiting == 1000
    assert limits.of("acme").waiting is None
    assert limits.weights == Weights(1.0, {"acme": 3.0})
    assert limits.of_kind("other", "transcode") == KindLimits(Limit(10, 60, 5), None, 4)
    assert limits.of_kind("acme", "transcode") == KindLimits(Limit(10, 60, 5), None, 20)
    assert limits.of_kind("acme", "ocr") == KindLimits(waiting=7)
    assert limits.of_kind("other", "ocr") == KindLimits()
    assert limits.running is not None
    assert limits.running("acme", "transcode") == (None, 20)
    assert limits.running("other", "ocr") == (None, None)


def test_without_a_table_nothing_is_limited() -> None:
    assert LimitsConfig.read({}) == LimitsConfig()
    assert LimitsConfig().of("-") == TenantLimits()
    assert LimitsConfig().running is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"submitt": "1/1m"}, "[limits]: unknown setting 'submitt'. Known settings: submit, waiting,"),
        ({"submit": 100}, "[limits] submit: 100 is not a limit. Use 60/1m"),
        ({"submit": "often"}, "[limits] submit: 'often' is not a limit"),
        ({"submit": "0.5/1s"}, "less than one submission"),
        ({"waiting": -1}, "[limits] waiting: -1 is not a limit"),
        ({"waiting": True}, "[limits] waiting: True is not a limit"),
        ({"bytes": 1.5}, "[limits] bytes: 1.5 is not a limit"),
        ({"weight": 0}, "[limits] weight: 0 is not a weight"),
        ({"weight": "unlimited"}, "is not a weight"),
        ({"tenants": {"a": 5}}, "[limits.tenants] has tables only"),
        ({"kinds": {"k": {"bytes": 1}}}, "[limits.kinds.k]: unknown setting 'bytes'"),
        ({"tenants": {"a": {"kinds": {"k": {"running": "x"}}}}}, "[limits.tenants.a.kinds.k] running"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_place(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        LimitsConfig.read(table)
    assert message in str(raised.value)
