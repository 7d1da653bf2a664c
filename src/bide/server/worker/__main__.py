"""`python -m bide.server.worker SETTINGS`: how the supervisor starts a child."""

from bide.server.worker.child import main

main()
