"""`python -m bide.client.polling.processes FD`: how a parent starts a child; all else comes over that socket."""

from bide.client.polling.processes.child import main

main()
