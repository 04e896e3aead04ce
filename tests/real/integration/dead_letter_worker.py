"""A process that replays dead letters and is to be killed in the middle: `<URL> <where its effects go>`."""

import os
import signal
import sys
from pathlib import Path

from segmented.locks.dead_letters import DeadLetter, replay
from segmented.locks.dead_letters_sql import SqlDeadLetters


def main(place: str, effects: str) -> None:
    """Do the work, and die after the second one, before anybody could note that it is done."""

    def handle(letter: DeadLetter) -> None:
        with Path(effects).open("a", encoding="utf-8") as file:
            file.write(f"{letter.work.work_id}\n")
        if letter.work.work_id == "b":
            os.kill(os.getpid(), signal.SIGKILL)

    replay(SqlDeadLetters(place), handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
