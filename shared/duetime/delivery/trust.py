"""Which certificate authorities to trust: a PEM file that libcurl can read."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

SYSTEM_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Amazon Linux (Lambda), Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)


def find_ca_file(system_ca_files: Sequence[str] = SYSTEM_CA_FILES) -> str | None:
    """Return the machine's own bundle, else certifi's, else None (libcurl's built-in default, which may not exist).

    pycurl's wheels carry an OpenSSL of their own that knows one path, Red Hat's. The machine's bundle comes first
    since that is where its owner adds and withdraws authorities; certifi serves machines without one.
    """
    for path in system_ca_files:
        if Path(path).is_file():
            return path
    try:
        certifi = importlib.import_module("certifi")
    except ImportError:
        return None
    return str(certifi.where())
