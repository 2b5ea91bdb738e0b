"""Reads the text of one literal with its casts: the grammar below the default parser, and nothing of its meaning.

The grammar, over tokens of the Postgres lexer (manual, "Lexical Structure"), with any part in parentheses::

    literal := [sign] ( 'string' | number | word ) { :: type }
    type    := word or "word" { . word } [ (n [, n]) ] { word } { [] }
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class LiteralForm(StrEnum):
    """How a literal is written; a word is ``true``, ``false`` or ``null``."""

    STRING = "string"
    NUMBER = "number"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class TypeName:
    """The type of a cast: `name` in lower case unless quoted, with its schema if there was one.

    `arguments` are the numbers in parentheses, `is_array` tells of ``[]``.
    """

    name: str
    arguments: tuple[int, ...] = ()
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal and its casts, innermost first. `text` is unquoted and carries the sign of a number."""

    form: LiteralForm
    text: str
    casts: tuple[TypeName, ...] = ()


def read_literal(expression: str) -> Literal | None:
    """The literal `expression` consists of, or None when it is anything else. Linear in its length."""
    try:
        tokens = list(_tokens(expression))
        return _Reader([*tokens, _END]).literal()
    except _NotALiteralError:
        return None


class _NotALiteralError(Exception):
    """What is read leaves the grammar."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


_END = _Token("end", "")

#: A word right before a quote (``E'…'``, ``B'…'``, ``U&'…'``) is another kind of constant and matches nothing here.
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>'(?:[^']|'')*')
      | (?P<number>[0-9]+(?:\.[0-9]+)?(?![0-9A-Za-z_.]))
      | (?P<word>[^\W\d]\w*(?!['&\w]))
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<symbol>::|[()\[\],.+-])
    )\s*""",
    re.VERBOSE,
)


def _tokens(expression: str) -> Iterator[_Token]:
    place = 0
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None or match.lastgroup is None:
            raise _NotALiteralError
        yield _Token(match.lastgroup, _unquoted(match.lastgroup, match[match.lastgroup]))
        place = match.end()


def _unquoted(kind: str, text: str) -> str:
    if kind in {"string", "quoted"}:
        return text[1:-1].replace(text[0] * 2, text[0])
    return text.lower() if kind == "word" else text


class _Reader:
    """One pass over the tokens; parentheses are counted, not recursed into, for defaults may be long."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def literal(self) -> Literal:
        sign, opened = self._prefix()
        form, text = self._atom(sign)
        casts = []
        while self._next.kind != "end":
            if self._take("symbol", "::"):
                casts.append(self._type())
            elif opened and self._take("symbol", ")"):
                opened -= 1
            else:
                raise _NotALiteralError
        if opened:
            raise _NotALiteralError
        return Literal(form, text, tuple(casts))

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self, kind: str, text: str | None = None) -> _Token | None:
        token = self._next
        if token.kind != kind or (text is not None and token.text != text):
            return None
        self._place += 1
        return token

    def _need(self, kind: str, text: str | None = None) -> _Token:
        token = self._take(kind, text)
        if token is None:
            raise _NotALiteralError
        return token

    def _prefix(self) -> tuple[str, int]:
        sign, opened = "", 0
        while self._next.kind == "symbol":
            if self._take("symbol", "("):
                opened += 1
            elif not sign and self._next.text in {"+", "-"}:
                sign = self._need("symbol").text
            else:
                raise _NotALiteralError
        return sign, opened

    def _atom(self, sign: str) -> tuple[LiteralForm, str]:
        if token := self._take("number"):
            return LiteralForm.NUMBER, token.text if sign != "-" else f"-{token.text}"
        if sign:
            raise _NotALiteralError
        if token := self._take("string"):
            return LiteralForm.STRING, token.text
        token = self._need("word")
        if token.text not in {"true", "false", "null"}:
            raise _NotALiteralError
        return LiteralForm.WORD, token.text

    def _type(self) -> TypeName:
        words = [self._type_word()]
        while self._take("symbol", "."):
            words[-1] += f".{self._type_word()}"
        while token := self._take("word"):
            words.append(token.text)
        arguments = self._arguments()
        while token := self._take("word"):
            words.append(token.text)
        is_array = False
        while self._take("symbol", "["):
            self._take("number")
            self._need("symbol", "]")
            is_array = True
        return TypeName(" ".join(words), arguments, is_array)

    def _type_word(self) -> str:
        return (self._take("word") or self._need("quoted")).text

    def _arguments(self) -> tuple[int, ...]:
        if not self._take("symbol", "("):
            return ()
        arguments = [self._argument()]
        while self._take("symbol", ","):
            arguments.append(self._argument())
        self._need("symbol", ")")
        return tuple(arguments)

    def _argument(self) -> int:
        negative = self._take("symbol", "-")
        digits = self._need("number").text
        if "." in digits or len(digits) > 9:
            raise _NotALiteralError
        return -int(digits) if negative else int(digits)
