"""Lines out of a byte stream, whatever the stream does: no line grows without bound."""

from typing import Final

LINE_BYTES_MAX: Final = 1 << 20  # a reading of 16 GPUs is below 16 KiB; a kernel record below 8 KiB


class Lines:
    """Joins chunks to lines. A line that is too long is dropped whole, and the next one is read again."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False  # inside a line that was too long

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their ends."""
        first, *lines = chunk.split(b"\n")
        if not lines:
            self._keep(first)
            return []
        *whole, rest = lines
        head = [] if self._skipping else [self._rest + first]
        self._rest, self._skipping = b"", False
        self._keep(rest)
        return [line for line in (*head, *whole) if len(line) <= LINE_BYTES_MAX]

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > LINE_BYTES_MAX:
            self._rest, self._skipping = b"", True
