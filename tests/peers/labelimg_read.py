"""Run by another environment's Python: LabelImg's own reader on a folder of XML; prints its boxes as JSON."""

import json
import sys
from pathlib import Path

from libs.pascal_voc_io import PascalVocReader

found = {}
for path in sorted(Path(sys.argv[1]).glob("*.xml")):
    shapes = PascalVocReader(str(path)).get_shapes()
    # (label, four corners from the upper left one, two colours, difficult)
    found[path.stem] = [[label, *points[0], *points[2], difficult] for label, points, _, _, difficult in shapes]
print(json.dumps(found))
