"""How does a line reach the file whole, while several engines may write to it?

One `write` of the whole line to a file opened for appending, under a lock where the file system has locks. A line that
did not fit the disk is taken back, if the file is locked.
"""

import gzip
import json
import os

# A larger file is not searched for the names that it holds, bytes.
SEARCHED = 64 << 20


def unused(path: str, name: str) -> str:
    """The name, or with a number behind it if the file has a case of that name already."""
    taken = set()
    if not os.path.isfile(path) or os.path.getsize(path) > SEARCHED:
        return name
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            for line in file:
                try:
                    taken.add(json.loads(line).get("id"))
                except (ValueError, AttributeError):
                    continue
    except (OSError, EOFError, UnicodeError):
        return name
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def append(path: str, line: dict) -> None:
    """Appends the line as JSON.

    Raises `OSError` if the file cannot be written, with the file as it was; `ValueError` or `TypeError` if the line is
    no JSON.
    """
    data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
    if path.endswith(".gz"):
        data = gzip.compress(data)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    # Without waiting, should the path be a pipe that no one reads.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o644)
    try:
        locked = _lock(file)
        before = os.fstat(file).st_size
        written = os.write(file, data)
        if written != len(data):
            if locked:
                os.ftruncate(file, before)
            raise OSError(f"only {written} of {len(data)} bytes could be written to `{path}`")
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    """Locks the file if that can be had at once: an engine waits for no one."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
