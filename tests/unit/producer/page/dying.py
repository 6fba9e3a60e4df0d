"""In the place of the program that looks at a sent photo: it ends, hangs or talks nonsense, as the photo says."""

import json
import os
import signal
import sys
import time

sys.stdin.buffer.readline()
WHAT = sys.stdin.buffer.read().decode()
if "die" in WHAT:
    os.kill(os.getpid(), signal.SIGSEGV)
if "leave" in WHAT:
    sys.exit(7)
if "hang" in WHAT:
    time.sleep(300)
if "secrets" in WHAT:
    print(json.dumps({"error": " ".join(sorted(os.environ))}))
if "nonsense" in WHAT:
    print(
        json.dumps({"width": 1, "height": 1, "threshold": 0.5, "notes": [], "seen": [{"label": "a", "score": "<b>"}]})
    )
if "infinite" in WHAT:
    box = {"label": "a", "class_id": 1, "score": 1e999, "box": [0, 0, 1, 1]}
    print(json.dumps({"width": 1, "height": 1, "threshold": 0.5, "notes": [], "seen": [box]}))
