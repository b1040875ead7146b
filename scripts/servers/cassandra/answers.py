"""``answers.py ADDRESS PORT``: does a node there answer CQL (STARTUP of the native protocol, version 4, by READY)?"""

import socket
import sys

READY = b"\2"
body = b"\0\1" + b"\0\x0bCQL_VERSION" + b"\0\x053.0.0"
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
        connection.sendall(b"\4\0\0\0\1" + len(body).to_bytes(4, "big") + body)
        sys.exit(connection.recv(9)[4:5] != READY)
except OSError:
    sys.exit(1)
