"""Server-sent events as bytes arrive. Nothing but the standard library is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

EVENT_STREAM: Final = "text/event-stream"
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""More than Duetime ever sends in one, and a bound on what is kept of one."""


@dataclass(frozen=True, slots=True)
class Message:
    """``event`` is "message" unless the stream says otherwise."""

    event: str
    data: str


class Decoder:
    """``feed`` it what arrives. ``retry_seconds``: how long the server asks to wait before coming back, if it does.

    Lines may end in LF, CRLF or CR, as the specification has it; a message that its stream breaks off in is none.
    """

    def __init__(self) -> None:
        self.retry_seconds: float | None = None
        self._rest = bytearray()
        self._event = ""
        self._data: list[str] = []
        self._kept_bytes = 0

    def feed(self, content: bytes) -> Iterator[Message]:
        """Return the messages that are complete by now. Raises ``ValueError`` for one without an end."""
        is_whole_line = b"\n" in content or b"\r" in content or self._rest.endswith(b"\r")
        self._rest += content
        if is_whole_line:
            # A CR at the end may be half of a CRLF.
            complete = bytes(self._rest).removesuffix(b"\r")
            end = self._rest[len(complete) :]
            lines = complete.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._rest = bytearray(lines.pop()) + end
            for line in lines:
                message = self._line(line)
                if message is not None:
                    yield message
        if self._kept_bytes + len(self._rest) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of more than {MAX_MESSAGE_BYTES} bytes")

    def _line(self, line: bytes) -> Message | None:
        if not line:
            message = Message(self._event or "message", "\n".join(self._data)) if self._data else None
            self._event, self._data, self._kept_bytes = "", [], 0
            return message
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._kept_bytes += len(line)
        elif name == "event":
            self._event = value
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) < 10:
            self.retry_seconds = int(value) / 1000
        return None
