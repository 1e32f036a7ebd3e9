"""The pure schedulers: which rows run next, on which instance and slot. No asyncio, torch, sockets or clocks."""
