"""Parts for tests, shipped: a clock that tests decide, and the suites that every store and every engine must pass.

The suites are in modules of their own (`bide.testing.store`, `bide.testing.engine`), for they need pytest and
pytest-asyncio.
"""

from bide.testing.clock import ManualClock

__all__ = ["ManualClock"]
