"""Commands that the page shows, changed so that they work in whatever folder a person pastes them."""

import re
import shlex
from pathlib import Path
from typing import Any

from producer.audit.cost import fold_counts
from producer.audit.results import fold_words
from shared.command import PROGRAM, hint, program
from shared.jobs.identity import read_request
from shared.jobs.job import Job
from shared.specs.options import words
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage


def rooted(command: str, storage: Storage) -> str:
    """A command that works in any folder: `STORE`, as reports write it, and relative paths are replaced by full ones.

    Args:
        command: From `hint` or a report, quoted for a shell; one that cannot be parsed stays as it is.
        storage: The store that is meant.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    words = [_in_store(word, storage.root) for word in words]
    words = [storage.root if before == "--store" else word for before, word in zip(["", *words], words, strict=False)]
    if words[:1] == [PROGRAM]:
        words[:1] = program()
    if words and "/" in words[0]:
        words[0] = str(Path(words[0]).absolute())
    return shlex.join(words)


def hint_here(storage: Storage, *arguments: object) -> str:
    """`hint` for a command that takes `--store`, always naming this store, whatever a terminal's settings are."""
    return rooted(hint(*arguments, "--store", storage.root), storage)


def rooted_text(text: str, storage: Storage) -> str:
    """A text with each command between back quotes `rooted`."""
    return re.sub("`([^`]+)`", lambda found: f"`{rooted(found[1], storage)}`", text)


def asked_with(storage: Storage, job: Job, asked: RunSpec, *, has_broker: bool) -> str:
    """The command that does a run again, as a person types it; for a fold, the command of its audit."""
    here = () if has_broker else ("--local",)
    if asked.audits and not asked.folds:
        # The run to ask is always named, because without it the job's own run would be asked.
        return hint_here(storage, "audit", job.job, "--quick", "--run", asked.audits[0], *here)
    if asked.folds:
        fold = asked if asked.fold else read_request(storage, asked.audits[0])
        training = [] if fold is None else _typed(storage, fold, fold_counts(job, asked.folds))
        return hint_here(storage, "audit", job.job, *fold_words(asked.folds), *training, *here)
    return hint_here(
        storage, "submit", "--job", job.job, "--run", asked.run, *_typed(storage, asked, job.counts), *here
    )


def _typed(storage: Storage, asked: RunSpec, counts: dict[str, int]) -> list[str]:
    """The options of a run, without its backbone if that is the one chosen when nobody names one."""
    fields: dict[str, Any] = {name: getattr(asked, name) for name in TrainingOptions.model_fields}
    if asked.start is None and asked.weights in ("none", "imagenet"):
        unsaid = TrainingOptions.model_validate(fields | {"backbone": "auto", "weights": "none"})
        chosen = unsaid.with_backbone(counts, None)
        if (chosen.backbone, chosen.weights) == (asked.backbone, asked.weights):
            return words(unsaid.with_files_in(storage.root), TrainingOptions)
    return words(asked.with_files_in(storage.root), TrainingOptions)


def _in_store(word: str, root: str) -> str:
    return root + word.removeprefix("STORE") if word.split("/")[0] == "STORE" else word
