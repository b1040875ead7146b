"""``blocking`` is made of ``asynchronous``, the other form of the client, by ``hatch_build.py``."""
