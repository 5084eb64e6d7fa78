"""Files that processes of every user of a host may lock. The kernel lets go of a lock when its last holder is gone."""

import contextlib
import fcntl
import json
import os
import tempfile
from pathlib import Path


def shared_folder(folder: Path) -> Path:
    """Make ``folder`` where it is missing, open to all users; ValueError where this user cannot lock files in it."""
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}-"))
            made.chmod(0o1777)
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                made.rmdir()
        usable = folder.is_dir() and not folder.is_symlink() and os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        raise ValueError(f"{folder}: no folder for locks can be made there: {error.strerror}") from None
    if not usable:
        raise ValueError(f"{folder} is not a folder in which this user can make files; remove it, or open it to all")
    return folder


def open_file(path: Path) -> int:
    """A descriptor of ``path``, made where it is missing; programs started later do not inherit it."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            # Never O_CREAT: in /tmp, Linux refuses that for the file of another user (fs.protected_regular).
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            os.fchmod(descriptor, 0o666)
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            os.close(descriptor)
            os.unlink(fresh)


def lock(path: Path, *, shared: bool = False) -> int | None:
    """A descriptor that holds the lock of ``path``, alone or ``shared``; None where that is not free at once."""
    while True:
        descriptor = open_file(path)
        if not _flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)  # removed after it was opened: a lock that nobody else would see


def is_locked(path: Path) -> bool:
    """Whether anybody holds the lock of ``path``; a missing file is not locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    free = _flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)
    return not free


def share(descriptor: int) -> None:
    """From a lock that is held alone to one that others can join."""
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def unlock(descriptor: int) -> None:
    """Let go of the lock, also where a forked child still has the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def write_line(descriptor: int, fields: dict, *, append: bool = False) -> None:
    """Leave ``fields`` in a locked file, instead of what it holds or below that."""
    if not append:
        os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(fields).encode() + b"\n", os.fstat(descriptor).st_size)


def read_lines(file: Path | int) -> list[dict]:
    """What ``write_line`` left in a file, or behind a descriptor; nothing where that is damaged or gone."""
    try:
        text = os.pread(file, 1 << 20, 0) if isinstance(file, int) else file.read_bytes()
        lines = [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError):
        return []
    return [line for line in lines if isinstance(line, dict)]


def _flock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
