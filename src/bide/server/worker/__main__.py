"""`python -m bide.server.worker SETTINGS`: the command with which the supervisor starts a child."""

from bide.server.worker.child import main

main()
