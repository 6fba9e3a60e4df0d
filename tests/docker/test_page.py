"""Profile `page`: published on this machine only, with a token, may only read, and has its browser parts."""

import re
import socket

import pytest

from tests.docker.stack import Stack, docker, wait_for
from tests.page import ServedPage

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]


@pytest.fixture(scope="session")
def page_built(built: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The page's image, of the code as it is."""
    stack = Stack(name="voc-build", folder=tmp_path_factory.mktemp("build"))
    stack.compose("--profile", "page", "build", "page", timeout_s=1200)


@pytest.fixture
def looking(stack: Stack, page_built: None) -> tuple[Stack, ServedPage]:
    """A stack whose page is up, on a port that was free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = Stack(name=stack.name, folder=stack.folder, environment={**stack.environment, "VOC_PAGE_PORT": str(port)})
    own.up("page")
    return own, ServedPage(port)


def test_the_page_is_opened_by_what_its_log_says_and_by_nothing_else(looking: tuple[Stack, ServedPage]) -> None:
    stack, page = looking
    said = wait_for(
        lambda: re.search(r"open http://localhost:(\d+)(/\?token=\S+)", stack.compose("logs", "page")),
        within_s=60,
        what="the address in the log",
    )
    assert int(said[1]) == page.port
    assert page.ask("/").status == 401
    opened = page.ask(said[2])
    assert opened.status == 303
    listed = page.ask("/", Cookie=opened.headers["set-cookie"].split(";")[0])
    assert (listed.status, "No jobs yet" in listed.text) == (200, True)
    published = stack.compose("port", "page", str(page.port)).strip()
    assert published == f"127.0.0.1:{page.port}"


def test_the_page_may_only_read_and_is_well(looking: tuple[Stack, ServedPage]) -> None:
    stack, _ = looking
    for path in ("/out/x", "/data/x", "/app/x"):
        tried = f"if touch {path} 2>/dev/null; then echo written; else echo refused; fi"
        assert stack.compose("exec", "-T", "page", "sh", "-c", tried).strip() == "refused", path
    assert stack.compose("exec", "-T", "page", "id", "-u").strip() != "0"
    assert stack.compose("exec", "-T", "page", "ls", "/run/voc").split() == ["broker_password"], "no other's password"
    container = stack.compose("ps", "-q", "page").strip()
    health = "{{.State.Health.Status}}"
    wait_for(lambda: docker("inspect", "-f", health, container).strip() == "healthy", within_s=90, what="healthy")


def test_the_image_has_the_browser_parts_and_no_npm(page_built: None) -> None:
    script = (
        "from producer.page.parts import Parts; import shutil; "
        "print(Parts().has_litert(), shutil.which('npm'), shutil.which('node'))"
    )
    image = "voc2tflite-page:0.2.0"
    assert docker("run", "--rm", "--entrypoint", "python", image, "-c", script).split() == ["True", "None", "None"]
