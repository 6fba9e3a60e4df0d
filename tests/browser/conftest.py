"""Fixtures: Debian's Chromium, one for each file of tests."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Page, chromium, find_chromium


@pytest.fixture(scope="session")
def chromium_program() -> str:
    """The browser's program."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: VOC_CHROMIUM names one")
    return program


@pytest.fixture(scope="module")
def browser(chromium_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser with one page, without a history."""
    with chromium(chromium_program, tmp_path_factory.mktemp("profile")) as page:
        yield page
