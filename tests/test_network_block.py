"""The guard of ``tests/conftest.py``: no test, and nothing that a test forks, reaches the network."""

import multiprocessing
import os
import socket

import pytest

# TEST-NET-1 (RFC 5737): nothing answers there, should the guard fail.
ELSEWHERE = ("192.0.2.1", 80)


def _attempt(queue) -> None:
    try:
        socket.create_connection(ELSEWHERE, timeout=1)
    except Exception as error:
        queue.put(str(error))


def test_a_connection_to_another_machine_is_refused():
    with pytest.raises(RuntimeError, match=r"tried to reach 192\.0\.2\.1"):
        socket.create_connection(ELSEWHERE, timeout=1)


def test_a_datagram_to_another_machine_is_refused():
    with socket.socket(type=socket.SOCK_DGRAM) as sender, pytest.raises(RuntimeError, match="tried to reach"):
        sender.sendto(b"", ELSEWHERE)


def test_a_name_is_not_looked_up():
    with pytest.raises(RuntimeError, match=r"tried to reach huggingface\.co"):
        socket.create_connection(("huggingface.co", 443), timeout=1)


def test_a_forked_child_is_refused_as_well():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_attempt, args=(queue,))
    child.start()
    child.join()
    assert "tried to reach" in queue.get()


def test_this_machine_is_reachable():
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(server.getsockname()[:2], timeout=1).close()


def test_hugging_face_libraries_know_that_they_are_offline():
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
