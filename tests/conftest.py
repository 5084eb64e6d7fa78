"""No network: neither for this process nor for what it forks, and Hugging Face libraries are told so.

And the catch rate of the planted faults, counted here because xdist's controller reads no deeper conftest.
"""

import os
import signal
import socket
import sys
import threading
from collections import Counter
from ipaddress import ip_address

_FAULTS: Counter[str] = Counter()
_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


class NetworkBlocked(RuntimeError):
    """Not an OSError, which a client could take for a network that is down and go on."""


def pytest_configure() -> None:
    os.environ |= dict.fromkeys(_OFFLINE, "1")
    # Where these are set pytest, and so every run that a test starts, prints messages uncut once more at its end.
    for variable in ("CI", "BUILD_NUMBER"):
        os.environ.pop(variable, None)
    # A shell that starts the tests in the background lets them ignore Ctrl-C, and with them whatever they start.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(_refuse_network)  # sees sockets of C extensions' Python callers, too, and survives a fork


def _refuse_network(event: str, args: tuple) -> None:
    if event in ("socket.connect", "socket.sendto"):
        _, address = args
        if isinstance(address, tuple) and not _is_this_machine(address[0]):
            raise NetworkBlocked(f"a test tried to reach {address[0]}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not _is_this_machine(args[0]):
        raise NetworkBlocked(f"a test tried to reach {args[0]}")


def _is_this_machine(host: str | bytes | None) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        return ip_address(name).is_loopback or ip_address(name).is_unspecified
    except ValueError:
        return False


def pytest_runtest_logreport(report) -> None:
    if report.when == "call":
        _FAULTS.update(verdict for name, verdict in report.user_properties if name == "fault")


def pytest_terminal_summary(terminalreporter) -> None:
    if _FAULTS:
        counts = ", ".join(f"{_FAULTS[verdict]} {verdict}" for verdict in ("detected", "wrong reason", "missed"))
        terminalreporter.write_line(f"planted faults: {counts}")
