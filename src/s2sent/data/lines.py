"""The lines of SentEval's files, read whole: one bad byte is an error that names the file and the line."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from s2sent.errors import DataError
from s2sent.untrusted import read_bytes


@dataclass(frozen=True)
class Lines:
    """The lines of one file, without their line ends."""

    path: str
    """Where they came from, for messages."""
    rows: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def fail(self, index: int, problem: str) -> DataError:
        """Return an error that names the file, the line (counted from 1) and its text, shortened."""
        text = self.rows[index]
        shown = text if len(text) <= 80 else text[:77] + "..."
        return DataError(f"{self.path}, line {index + 1}: {problem}: {shown!r}")


def read_lines(path: Path, encoding: str = "utf-8", *, hint: str = "") -> Lines:
    r"""Read a file into lines; only "\n" and "\r\n" end a line.

    Python's `splitlines` also breaks at U+0085, U+2028 and form feeds, which occur inside damaged sentences and
    would shift every label below them by one.

    Args:
        path: the file.
        encoding: `utf-8` (a byte order mark is dropped) or `latin-1`.
        hint: how to get the file, added to the message when it is missing.

    Raises:
        DataError: the file is missing, is empty, or holds bytes that are not of this encoding.
    """
    return decode_lines(read_bytes(path, hint=hint), str(path), encoding)


def decode_lines(data: bytes, path: str, encoding: str = "utf-8") -> Lines:
    """Do the same for bytes, such as a member of a zip; `path` names them in messages."""
    if encoding == "utf-8":
        data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not {encoding}. "
            "The file is damaged or was saved in another encoding: take it again from its source."
        ) from error
    if not text.strip():
        raise DataError(f"{path} is empty: take it again from its source.")
    rows = text.split("\n")
    if rows[-1] == "":
        rows.pop()  # the end of the last line, not a line of its own
    return Lines(path, tuple(row.removesuffix("\r") for row in rows))


def is_mojibake(text: str) -> bool:
    """Whether a text was damaged by an encoding mistake before it reached us.

    Three signs, all of which ordinary text lacks: the replacement character, a C1 control character (a Windows
    quotation mark read as latin-1), and text that is valid UTF-8 once written back as Windows-1252 ("cafÃ©").
    """
    if text.isascii():
        return False
    if any(character == "\ufffd" or "\x80" <= character <= "\x9f" for character in text):
        return True
    try:
        text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return False
    return True


def words(text: str) -> str:
    """Return the text as SentEval does: split at white space, joined by single spaces."""
    return " ".join(text.split())


def damage_notes(where: str, sentences: Iterable[str]) -> list[str]:
    """Return notes for the report: how many sentences are empty, how many are damaged. They are kept."""
    empty = damaged = 0
    for sentence in sentences:
        empty += not sentence
        damaged += is_mojibake(sentence)
    notes = []
    if empty:
        kept = "kept as SentEval does; a model that refuses them is shown a full stop"
        notes.append(f"{where}: {counted(empty, 'empty sentence')}, {kept}")
    if damaged:
        notes.append(f"{where}: {counted(damaged, 'sentence')} with damaged characters (mojibake), used as written")
    return notes


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 pair`, `2 pairs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
