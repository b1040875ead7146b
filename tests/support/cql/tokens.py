"""CQL's text as tokens, and a cursor over them (https://cassandra.apache.org/doc, CQL, "Definitions")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from cassandra.protocol import SyntaxException

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | //[^\n]* | /\*.*?\*/)
  | (?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})
  | (?P<blob>0[xX][0-9a-fA-F]*)
  | (?P<float>-?\d+\.\d*(?:[eE][+-]?\d+)? | -?\d+[eE][+-]?\d+)
  | (?P<integer>-?\d+)
  | (?P<string>'(?:[^']|'')*' | \$\$.*?\$\$)
  | (?P<quoted>"(?:[^"]|"")+")
  | (?P<word>[a-zA-Z][a-zA-Z0-9_]*)
  | (?P<marker>\? | :[a-zA-Z][a-zA-Z0-9_]*)
  | (?P<symbol><= | >= | != | [-(){}\[\]<>=,.:;*+%])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str


def tokens_of(cql: str) -> list[Token]:
    """Raises the driver's ``SyntaxException``, as the server would."""
    found: list[Token] = []
    at = 0
    while at < len(cql):
        match = _TOKEN.match(cql, at)
        if match is None:
            raise SyntaxException(0x2000, f"line 1:{at} no viable alternative at character {cql[at]!r}", None)
        at = match.end()
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            found.append(Token(kind, match.group()))
    return found


class Reader:
    """A cursor over the tokens of one statement."""

    def __init__(self, cql: str) -> None:
        self._tokens = tokens_of(cql)
        self._at = 0
        self.markers = 0

    def peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else Token("end", "<EOF>")

    def next(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether these words or symbols come next."""
        return all(self._is(self.peek(ahead), word) for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Step over these words or symbols if they come next."""
        if not self.sees(*words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.take(word):
                self.fail(f"expecting {word}")

    def name(self) -> str:
        token = self.next()
        if token.kind == "quoted":
            return token.text[1:-1].replace('""', '"')
        if token.kind != "word":
            self._at -= 1
            self.fail("expecting a name")
        return token.text.lower()

    def end(self) -> None:
        self.take(";")
        if self.peek().kind != "end":
            self.fail("extraneous input")

    def fail(self, why: str) -> NoReturn:
        raise SyntaxException(0x2000, f"mismatched input {self.peek().text!r} {why}", None)

    @staticmethod
    def _is(token: Token, word: str) -> bool:
        if token.kind == "word":
            return token.text.upper() == word.upper()
        return token.kind == "symbol" and token.text == word
