"""The modes that a terminal's output has set, and output as it may be shown again. Pure: bytes in, bytes out.

A program says its modes once (the alternate screen, the mouse, bracketed paste, cursor keys), maybe long before the
oldest output that is kept. `TerminalModes.feed` follows all output; `restore` gives what brings a fresh terminal into
these modes. Output that is shown again must not ask the terminal anything: it would answer into the program's input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

# Bytes of a sequence that is not complete yet; a longer one does not matter here.
MAX_PENDING = 256
_SEQUENCE = re.compile(
    rb"\x1b(?:"
    # Sequences with other ends, colours above all, have no effect here.
    rb"\[(?P<prefix>[<=>?]?)(?P<numbers>[0-9;:]*)(?P<middle>[ -/]*)(?P<final>[hlpqr])"
    rb"|(?P<single>[=>c])"
    rb"|\((?P<charset>[0-9A-Z])"
    rb"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    rb")"
)
# The beginning of a sequence at the end of a block.
_UNFINISHED = re.compile(rb"\x1b(?:\[[<=>?]?[0-9;:]*[ -/]*|\(|[\]PX^_][^\x07\x1b]*\x1b?)?\Z")
_QUERIES = re.compile(
    rb"\x05"  # ENQ
    rb"|\x1bZ"
    rb"|\x1b\[[?>]?[0-9;]*n"  # DSR
    rb"|\x1b\[[>=]?[0-9;]*c"  # DA
    rb"|\x1b\[\??[0-9;]*\$p"  # DECRQM
    rb"|\x1b\[>[0-9]*q"  # XTVERSION
    rb"|\x1b\[[0-9]*x"  # DECREQTPARM
    rb"|\x1b\[\?u"  # the keyboard protocol's flags
    rb"|\x1b\[\?[0-9;]+S"  # graphics attributes
    rb"|\x1b\[(?:1[13-9]|2[01])(?:;[0-9;]*)?t"  # reports of the window
    rb"|\x1b\][0-9;a-z]*;\?(?:[0-9;?]*)(?:\x07|\x1b\\)"  # OSC: colours, the clipboard
    rb"|\x1bP[$+]q[^\x07\x1b]*(?:\x07|\x1b\\)"  # DECRQSS, XTGETTCAP
)
# Private modes and their values in a fresh terminal.
_DEFAULTS = {
    **dict.fromkeys((1, 5, 6, 45, 66, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2026, 2031), False),
    7: True,
    12: False,
    25: True,
}
_ALTERNATE = frozenset({47, 1047, 1049})
_MOUSE = frozenset({9, 1000, 1001, 1002, 1003})
_SOFT_RESET = (1, 6, 7, 25, 66)


@dataclass(slots=True)
class TerminalModes:
    """The modes that a terminal's output has set. Call `copy` before feeding output that may not count."""

    private: dict[int, bool] = field(default_factory=dict)  # that differ from a fresh terminal's
    alternate: int = 0  # the mode by which the alternate screen was entered
    mouse: int = 0
    insert: bool = False
    newline: bool = False
    keypad: bool = False
    charset: bytes = b"B"
    region: bytes = b""
    cursor: bytes = b""
    pending: bytes = b""

    def copy(self) -> TerminalModes:
        """Return an independent copy."""
        return replace(self, private=dict(self.private))

    def feed(self, data: bytes) -> None:
        """Follow output, in blocks of any size."""
        if self.pending:
            data, self.pending = self.pending + data, b""
        if b"\x1b" not in data:
            return
        end = 0
        for found in _SEQUENCE.finditer(data):
            self._apply(found)
            end = found.end()
        rest = _UNFINISHED.search(data, max(end, len(data) - MAX_PENDING))
        if rest is not None:
            self.pending = rest[0]

    def restore(self) -> bytes:
        """Return the bytes that set these modes in a fresh terminal."""
        parts = [b"\x1b[?%dh" % self.alternate] if self.alternate else []
        parts += [b"\x1b[?%d%c" % (mode, ord("h" if on else "l")) for mode, on in sorted(self.private.items())]
        if self.mouse:
            parts.append(b"\x1b[?%dh" % self.mouse)
        flags = ((self.insert, b"\x1b[4h"), (self.newline, b"\x1b[20h"), (self.keypad, b"\x1b="))
        parts += [text for on, text in flags if on]
        if self.charset != b"B":
            parts.append(b"\x1b(" + self.charset)
        if self.region:
            parts.append(b"\x1b[%sr" % self.region)
        if self.cursor:
            parts.append(b"\x1b[%s q" % self.cursor)
        return b"".join(parts)

    def forget_position(self) -> None:
        """Forget the position in a sequence: output is missing here, so a sequence that began before does not go on."""
        self.pending = b""

    def _apply(self, found: re.Match[bytes]) -> None:
        kind = found.lastgroup
        if kind == "final":
            self._apply_control(*found.group("prefix", "numbers", "middle", "final"))
        elif kind == "charset":
            self.charset = found["charset"]
        elif kind == "single" and found["single"] == b"c":
            self._reset()
        elif kind == "single":
            self.keypad = found["single"] == b"="

    def _apply_control(self, prefix: bytes, numbers: bytes, middle: bytes, final: bytes) -> None:
        if final in b"hl":
            if not middle:
                self._set_modes(prefix, numbers, final == b"h")
        elif final == b"p" and middle == b"!":
            self._soft_reset()
        elif final == b"q" and middle == b" ":
            self.cursor = numbers
        elif final == b"r" and not prefix and not middle:
            self.region = numbers

    def _set_modes(self, prefix: bytes, numbers: bytes, on: bool) -> None:
        for text in numbers.replace(b":", b";").split(b";") if prefix in (b"", b"?") else ():
            mode = int(text) if text and len(text) < 6 else -1
            if prefix:
                self._set_private(mode, on)
            elif mode == 4:
                self.insert = on
            elif mode == 20:
                self.newline = on

    def _set_private(self, mode: int, on: bool) -> None:
        if mode in _ALTERNATE:
            self.alternate = mode if on else 0
        elif mode in _MOUSE:
            self.mouse = mode if on else 0
        elif mode in _DEFAULTS:
            if on == _DEFAULTS[mode]:
                self.private.pop(mode, None)
            else:
                self.private[mode] = on

    def _reset(self) -> None:
        fresh = TerminalModes()
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(fresh, name))

    def _soft_reset(self) -> None:
        for mode in _SOFT_RESET:
            self.private.pop(mode, None)
        self.insert, self.keypad, self.charset, self.region = False, False, b"B", b""


def without_queries(data: bytes) -> bytes:
    """Return output less what a terminal would answer."""
    return _QUERIES.sub(b"", data)


def last_lines_start(data: bytes, lines: int, *, whole: bool) -> int:
    """Return the position at which the last lines of output begin. `whole`: the output begins with a line's start.

    If the output is not whole, its first line may be half a line, or begin within a sequence, and is left out. If there
    is no other line, as full-screen programs write no ends of lines, the position is that of the first sequence.
    """
    at = len(data)
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            break
    if at >= 0:
        return at + 1
    if whole:
        return 0
    first = data.find(b"\n") + 1
    return first or max(data.find(b"\x1b"), 0)


def terminal_state(modes: TerminalModes, data: bytes, lines: int, *, whole: bool) -> bytes:
    """Return the bytes that bring a fresh terminal to the end of `data`, the kept output; `modes` are those before
    it.
    """
    start = last_lines_start(data, lines, whole=whole)
    now = modes.copy()
    now.feed(data[:start])
    return now.restore() + without_queries(data[start:])
