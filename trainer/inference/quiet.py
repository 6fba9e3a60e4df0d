"""What LiteRT and TensorFlow's converter write to standard error -> only what matters of it."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Remarks on the kernels in use, the options that were asked for, and absent accelerators.
_REMARK: Final = re.compile(rb"INFO: |VERBOSE: |fully_quantize: |WARNING: \[[ng]pu_registry\.cc")
# Errors that LiteRT also raises in Python.
_RAISED: Final = re.compile(rb"ERROR: |WARNING: ")


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep remarks of LiteRT and the converter off the terminal, and also messages about errors that they raise.

    Everything else that reaches the process's standard error meanwhile is written there when the block ends.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as caught:
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        is_raised = True
        try:
            yield
            is_raised = False
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            lines = (line for line in caught if not _REMARK.match(line) and not (is_raised and _RAISED.match(line)))
            os.write(2, b"".join(lines))
