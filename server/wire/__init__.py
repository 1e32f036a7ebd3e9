"""Sans-IO wire protocols: bytes and text in, events out. No asyncio, sockets, threads or clocks."""
