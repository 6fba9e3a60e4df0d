"""Where jobs and runs are kept: `Storage`, in a local folder or in an object store."""

from shared.storage.folder import TEMPORARY_MARK, FolderMark, Stamp
from shared.storage.storage import Storage

__all__ = ["TEMPORARY_MARK", "FolderMark", "Stamp", "Storage"]
