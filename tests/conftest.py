"""What holds for all tests.

Examples that hypothesis draws are new in every run here, and the same in every run of the CI: there a change is judged,
not its luck. No example has a time limit: a busy machine is no bug.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Whoever starts the tests aside may have them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
