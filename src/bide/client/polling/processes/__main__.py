"""`python -m bide.client.polling.processes FD`: the command of a child. The parent sends everything else over the socket."""

from bide.client.polling.processes.child import main

main()
