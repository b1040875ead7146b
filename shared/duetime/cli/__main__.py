"""``python -m duetime.cli``."""

from __future__ import annotations

from duetime.cli.main import main

if __name__ == "__main__":
    main()
