"""Looking at processes never fails, however they end meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading

from tests.setup.processes import alive


def test_a_process_is_alive_until_it_ends_collected_or_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert alive(process.pid)
    assert process.stdin is not None
    process.stdin.close()
    while alive(process.pid):
        pass
    assert process.returncode is None  # a zombie still
    process.wait()
    assert not alive(process.pid)


def test_looking_while_processes_end_and_are_collected_raises_nothing() -> None:
    for _ in range(50):
        process = subprocess.Popen(["/bin/true"])
        collector = threading.Thread(target=process.wait)
        collector.start()
        while alive(process.pid):
            pass
        collector.join()
