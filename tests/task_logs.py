"""What a task says in its log, for the tests of worker and trainer."""

from typing import Any

import pytest


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    """Each event with its outcome, its reason or its number of examples; fixture `task_logs` captures them."""
    facts = [vars(record) for record in caplog.records]
    return [(one["message"], one.get("outcome", one.get("reason", one.get("examples")))) for one in facts]
