"""The client for programs that await. ``duetime.client.blocking`` is made from it (``scripts/write_client.py``)."""
