"""How large boxes become in the stored picture, by their shorter side: the histogram that lint shows. Pure."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from shared.annotation import Annotation

# Below this the finest grid (stride 8) sees half a cell: hardly to be learned.
TINY_PX: Final = 4.0

# Upper edges of the bins in pixels of the stored picture; the last bin has none.
EDGES_PX: Final = (4, 8, 16, 32, 64, 128, 256)


@dataclass(slots=True, kw_only=True)
class BoxSizes:
    """Counts of boxes by the bin of their shorter side; `unsized` are boxes of files that do not say their size."""

    bins: Counter[int] = field(default_factory=Counter)
    unsized: int = 0

    @property
    def tiny(self) -> int:
        """Boxes under `TINY_PX`."""
        return self.bins[0]

    def add(self, annotation: Annotation, image_size: int, resize: Literal["stretch", "letterbox"]) -> None:
        """Count the boxes of one file as they will be in a square picture of `image_size` pixels."""
        if not annotation.width or not annotation.height:
            self.unsized += len(annotation.objects)
            return
        scale_x, scale_y = image_size / annotation.width, image_size / annotation.height
        if resize == "letterbox":
            scale_x = scale_y = min(scale_x, scale_y)
        self.bins.update(
            bisect_right(EDGES_PX, min((box.xmax - box.xmin) * scale_x, (box.ymax - box.ymin) * scale_y))
            for box in annotation.objects
        )

    def merge(self, other: "BoxSizes") -> None:
        """Add the counts of `other`."""
        self.bins.update(other.bins)
        self.unsized += other.unsized

    def rows(self) -> list[tuple[str, int]]:
        """Each bin's name in pixels and its count, smallest first."""
        names = [f"< {EDGES_PX[0]} px"]
        names += [f"{low} to {high} px" for low, high in pairwise(EDGES_PX)]
        names.append(f"≥ {EDGES_PX[-1]} px")
        return [(name, self.bins[index]) for index, name in enumerate(names)]
