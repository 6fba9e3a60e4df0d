"""Where jobs and runs are kept: `Storage`, in a local folder or in a bucket."""

from shared.storage.data_folder import BucketFolder, DataFolder, data_folder
from shared.storage.files import FolderMark, Stamp
from shared.storage.folder import TEMPORARY_MARK
from shared.storage.storage import Storage

__all__ = ["TEMPORARY_MARK", "BucketFolder", "DataFolder", "FolderMark", "Stamp", "Storage", "data_folder"]
