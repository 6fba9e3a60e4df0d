"""The files of a data set as the producer reads them, in a folder or in a bucket."""

from producer.photos.bucket import BucketPhotos
from producer.photos.files import Entry, PairFiles, Photos
from producer.photos.folder import FolderPhotos
from shared.storage import BucketFolder, DataFolder

__all__ = ["Entry", "PairFiles", "Photos", "photos_in"]


def photos_in(folder: DataFolder) -> Photos:
    """The files of the data set that lies there."""
    return BucketPhotos(folder) if isinstance(folder, BucketFolder) else FolderPhotos(folder)
