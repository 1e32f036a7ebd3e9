"""The port: sockets, handshakes, open connections, plain pages."""
