"""The speed of the poller compared with a bare aiohttp loop, and whether real figures match the simulation."""
