"""Entry point of the installed scripts: put the application's folder on the path, then run `shared.command`.

An application must not claim names like `shared` or `worker` in site-packages, so a wheel has all packages below
`voc2tflite`, and this module is `voc2tflite.shared.launcher` there. This process and those that it starts look for
packages in that folder first. In a checkout the folder is the repository.
"""

import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run the command line."""
    root = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    import_module("shared.command").main()
