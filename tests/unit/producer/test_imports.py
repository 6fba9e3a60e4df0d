"""The producer's image has neither numpy nor OpenCV nor TensorFlow: nothing that it imports may want them."""

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
for absent in ("numpy", "cv2", "tensorflow", "keras", "matplotlib", "PIL", "ai_edge_litert"):
    sys.modules[absent] = None
import producer
names = [module.name for module in pkgutil.walk_packages(producer.__path__, "producer.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
importlib.import_module("producer.__main__")
print(len(names))
"""


def test_every_module_of_the_producer_is_imported_without_what_its_image_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 80
