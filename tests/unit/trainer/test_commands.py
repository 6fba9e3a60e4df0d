"""What the trainer's commands print besides their figures."""

import subprocess
import sys


def test_tensorflow_says_nothing_and_what_comes_after_is_heard() -> None:
    code = "import sys; from trainer.__main__ import _quiet_tensorflow; _quiet_tensorflow(); sys.stderr.write('heard')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "heard")
