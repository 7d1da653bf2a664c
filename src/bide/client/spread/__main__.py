"""`python -m bide.client.spread FD`: how a parent starts a child; all else comes over that socket."""

from bide.client.spread.child import main

main()
