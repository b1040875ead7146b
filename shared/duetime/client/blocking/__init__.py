"""The client for programs that wait, made of ``asynchronous`` by ``scripts/write_client.py``."""
