"""A signal handler that raises while a command is packed for the wire ends the call, and not the process."""

import subprocess
import sys

PROGRAM = """
import signal

from segmented.stores.redis.exchange import packed

class Struck(Exception):
    pass

def strike(*_):
    raise Struck

signal.signal(signal.SIGALRM, strike)
command = ("EVALSHA", "0" * 40, 14, *(f"key {number}" for number in range(14)), 12345, 60000, 7)
whole = packed((command,))
struck = 0
while struck < 2_000:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)  # once
        while True:
            packed((command,) * 20)
    except Struck:
        struck += 1
assert packed((command,)) == whole
print(struck)
"""


def test_a_handler_that_raises_while_a_command_is_packed_does_not_end_the_process() -> None:
    ended = subprocess.run(  # our interpreter
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, check=False
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    assert ended.stdout == "2000\n"
