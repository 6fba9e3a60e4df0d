"""`detections_<split>.json` of a run: what its int8 model saw in a split's photos, beside what is annotated there."""

from typing import Annotated, Any, Literal

from pydantic import Field

from shared.placement import Resize
from shared.specs.frozen import SCHEMA_VERSION, Frozen


class SeenImage(Frozen):
    """A photo: its id among the annotations and detections, and its file below the job's folder.

    `scene` is the same for photos of one scene, "" if their names do not tell.
    """

    id: int
    file_name: str
    scene: str = Field(default="", exclude_if=lambda scene: not scene)


class SeenSplit(Frozen):
    """One model's detections on a split's photos beside their annotations, both in COCO form.

    Boxes are [x, y, width, height] in pixels of the stored pictures, squares of `image_size` px.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: str
    form: str
    split: str
    labels: tuple[str, ...]
    image_size: Annotated[int, Field(gt=0, le=1 << 16)]
    resize: Resize
    images: tuple[SeenImage, ...]
    annotations: tuple[dict[str, Any], ...]
    detections: tuple[dict[str, Any], ...]

    def photos(self) -> dict[str, int]:
        """The image id of each photo by its file, in the order of the files' names."""
        return dict(sorted((image.file_name, image.id) for image in self.images))

    def scenes(self) -> dict[str, str]:
        """The scene of each photo by its file."""
        return {image.file_name: image.scene for image in self.images}
