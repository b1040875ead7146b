"""What must never be written to a log, taken out at the last moment before it would be.

The rule: fields whose name speaks of a secret, of headers or of a payload are replaced; every URL loses its
user information, query and fragment, and whatever looks like an API key goes. It is a net below the code, which
should not log such things to begin with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from duetime.domain.api_keys import KEY_PREFIX

REDACTED = "[redacted]"

_SENSITIVE_NAME = re.compile(
    r"secret|token|passw|credential|authori[sz]ation|cookie|signature|header|payload|body|api_?key", re.IGNORECASE
)
# A scheme of any length would be looked for from each letter of a long word.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:[^\s/?#\"'<>]*@)?(?P<rest>[^\s?#\"'<>]*)(?:[?#][^\s\"'<>]*)?"
)
_CREDENTIALS = re.compile(r"(?P<scheme>\b(?!https?:|sqlite:)[A-Za-z][A-Za-z0-9+.-]{0,30}://)\S*@")
"""Drivers take passwords that a URL could not have: whatever stands before the last @ may be part of one."""
_API_KEY = re.compile(rf"{KEY_PREFIX}[0-9A-Za-z_-]+")


def redact_text(text: str) -> str:
    """``text`` with every URL in it cut down to scheme, host, port and path, and without API keys."""
    if KEY_PREFIX in text:
        text = _API_KEY.sub(REDACTED, text)
    if "://" not in text:
        return text
    return _URL.sub(r"\g<scheme>\g<rest>", _CREDENTIALS.sub(r"\g<scheme>", text))


def redact_field(name: str, value: object) -> object:
    """``value`` as it may be logged under ``name``; containers are looked through."""
    if _SENSITIVE_NAME.search(name) and not isinstance(value, bool | int | float):
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {str(key): redact_field(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_field(name, item) for item in value]
    return value
