"""How fast the poller is, beside a bare aiohttp loop on the same server, and whether reality is as simulated."""
