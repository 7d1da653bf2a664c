"""Test support that ships with bide: a clock that tests control, and the conformance suites of stores, engines and
other backends.

The suites are separate modules (`bide.testing.store`, `bide.testing.engine`, …), because they need pytest and
pytest-asyncio.
"""

from bide.testing.clock import ManualClock

__all__ = ["ManualClock"]
