"""The error tree; the type alone tells a caller what to do."""

from typing import ClassVar, Final

# Why a worker may not know what a message is about. Two stores that share a Redis take each other's hints, which are
# sent again after 30 s.
ELSEWHERE: Final = "it was removed, or is of another store, which needs a Redis of its own (VOC_BROKER_URL)"


class PipelineError(Exception):
    """Base of all errors that this project raises on purpose; the text is written for the person at the terminal."""


class InputError(PipelineError):
    """The pair will never succeed as it is: quarantine it, count it under `kind`, and go on with the others."""

    kind: ClassVar[str] = "pair_unreadable"


class AnnotationError(InputError):
    """The XML is malformed, hostile or not a VOC annotation."""

    kind = "annotation_unreadable"


class ImageError(InputError):
    """The picture cannot be read: damaged, of an unknown format, or too large."""

    kind = "image_unreadable"


class ImageFormatUnknown(ImageError):
    """The first bytes are not those of a supported picture format, so the rest of the file does not matter."""


class ImageUnsupported(ImageError):
    """The picture needs a library that is not installed here; the picture itself may be sound."""

    kind = "image_unsupported"


class PairChanged(InputError):
    """A file of the pair is gone or has changed since submit: picture and annotation may no longer belong together."""

    kind = "pair_changed"


class OptionError(PipelineError):
    """An option of the command line has a value that is not allowed."""


class LintError(PipelineError):
    """The data set cannot be used as asked: an unknown class, no usable pair, contradicting lists."""


class PlanError(PipelineError):
    """The job cannot be accepted: its name is taken or invalid, or its folder is not below the data root."""


class MessageError(PipelineError):
    """A queue message was refused: it is not a line of its job's plan."""


class FormatError(PipelineError):
    """A file of the store or a message is not in this version's format: damaged, or written by another version."""


class VersionError(FormatError):
    """The file names a schema version that this program does not read: leave it alone; a person has to decide."""


class ShardError(PipelineError):
    """A shard file is truncated, or its checksum or schema version differs from its receipt."""


class LeaseLost(PipelineError):
    """Another process holds this lease now: stop at once, publish nothing."""


class StopRequested(PipelineError):
    """The process was asked to stop: give the lease back without counting the attempt."""


class Interrupted(PipelineError):
    """A person stopped a command that was waiting for a job; the text says how far the job is and what continues."""


class Cancelled(PipelineError):
    """The job was cancelled: stop, publish nothing."""


class StorageError(PipelineError):
    """The store refused a read or a write: full, read-only or absent."""


class BrokerError(PipelineError):
    """Redis cannot be reached or is not set up for this pipeline."""


class TrainingError(PipelineError):
    """Training cannot go on: a loss that is not finite, a split without pictures."""


class ExportError(PipelineError):
    """The exported model disagrees with the trained one."""
