"""The HTTP/1.1 server of `bide serve`: it parses requests with httptools and runs an ASGI application.

`server` listens and stops, `connection` reads requests within limits, `request_cycle` runs one request and writes its
response. A `handshake` makes a connection a `websocket`. The application uses ASGI only. One extension is bide's own,
`bide.stream` (see `bide.server.http.request`).
"""
