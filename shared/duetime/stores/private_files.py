"""Files and folders that nobody but their owner may read: what Duetime stores holds credentials of its users."""

from __future__ import annotations

import os
from pathlib import Path

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


def make_folder(path: Path) -> None:
    """Make what is missing of ``path``, for its owner alone; what exists is left as it is. Raises ``OSError``."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file for its owner alone, if there is none; what exists is left as it is. Raises ``OSError``."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
