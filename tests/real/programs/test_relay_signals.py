import subprocess
import sys

# A process of its own: pytest's time limit uses the same timer.
PROGRAM = """
import random, signal
from segmented.cli.output import signals

chance = random.Random(1)
for _ in range(3_000):
    with signals(signal.SIGALRM) as heard:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.0003))
        while not heard(chance.choice((0.000001, 5.0))):
            pass
print("ended")
"""


def test_a_signal_ends_a_pause_at_whatever_moment_of_it_the_signal_comes() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.stdout, ran.stderr) == ("ended\n", "")
