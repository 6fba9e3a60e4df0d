"""axe-core finds nothing serious on any page, and the keyboard alone reaches everything that can be pressed.

Skipped where `make page` has not fetched axe-core.
"""

from collections.abc import Iterator

import pytest

from producer.finalize.lint_csv import lint_rows
from producer.page.parts import NODE_MODULES
from shared.jobs.paths import JobPaths, RunPaths
from shared.storage import Storage
from tests.browser.chromium import Page
from tests.browser.served import TOKEN, served
from tests.unit.producer.page.audited import JOB, make_audited
from tests.unit.producer.page.audited import RUN as AUDIT
from tests.unit.producer.page.seen_run import RUN, make_seen
from tests.unit.producer.page.test_findings import findings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

AXE = NODE_MODULES / "axe-core" / "axe.min.js"
PAGES = {
    "jobs": "/",
    "job": f"/jobs/{RUN}",
    "findings": f"/jobs/{RUN}/findings",
    "findings of a class": f"/jobs/{RUN}/findings?class=queen&kind=box_clipped",
    "run": f"/runs/{RUN}",
    "compare": f"/compare?run={RUN}&run=other",
    "photos": f"/runs/{RUN}/photos",
    "try": f"/runs/{RUN}/try",
    "labels": f"/runs/{AUDIT}/labels",
    "problem": "/nothing",
}
SERIOUS = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => `${id}: ${nodes.map(node => node.html).join(" ").slice(0, 300)}`))"""
# What a mouse can press and Tab never reaches.
UNREACHED = """(reached => [...document.querySelectorAll("a[href], button, input, select, summary")]
  .filter(one => one.offsetWidth && !one.closest("[disabled]") && !reached.has(one)).map(one => one.outerHTML))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("both")
    store = make_seen(folder)
    audited = make_audited(tmp_path_factory.mktemp("audited"))
    seen, other = Storage(str(store)), Storage(str(audited))
    for key in [*other.walk(f"jobs/{JOB}"), *other.walk(f"runs/{AUDIT}")]:
        seen.write(key, other.read(key))
    asked = seen.read(RunPaths(RUN).request)
    seen.write(RunPaths("other").request, asked.replace(b'"run":"run"', b'"run":"other"'))
    seen.write(RunPaths(RUN).int8, b"no model")
    seen.write(JobPaths(RUN).lint, "".join(f"{line}\n" for line in lint_rows(findings(60))).encode())
    with served(store, store.parent / "data", change_token=TOKEN) as address:
        yield address


@pytest.fixture(scope="module")
def page(browser: Page, site: str) -> Page:
    """A browser that was shown the token."""
    browser.visit(f"{site}/")
    browser.evaluate("document.querySelector('input[name=token]').focus()")
    browser.call("Input.insertText", text=TOKEN)
    browser.leave_by_key("Enter")
    return browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(page: Page, site: str, name: str, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core: make page")
    page.prefer(scheme)
    page.visit(f"{site}{PAGES[name]}")
    is_problem = page.evaluate("performance.getEntriesByType('navigation')[0].responseStatus") != 200
    assert is_problem == (name == "problem")
    page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
    assert page.evaluate(SERIOUS) == []


@pytest.mark.parametrize("name", PAGES)
def test_tab_reaches_all_that_can_be_pressed(page: Page, site: str, name: str) -> None:
    page.visit(f"{site}{PAGES[name]}")
    count = page.evaluate("document.querySelectorAll('a[href], button, input, select, summary, [tabindex]').length")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.evaluate("globalThis.reached = new Set(), 0")
    for _ in range(count + 2):
        page.press("Tab")
        page.evaluate("reached.add(document.activeElement), 0")
    assert page.evaluate(f"{UNREACHED}(reached)") == []
