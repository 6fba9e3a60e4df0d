"""Who may look at the page, and what a browser may do with it: asked of a page that is really served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.page.server import address_of
from producer.settings import ProducerSettings
from shared.errors import OptionError
from tests.page import ServedPage, served


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPage]:
    store = tmp_path_factory.mktemp("store")
    with served(ProducerSettings(store=str(store), data_root=str(store))) as page:
        yield page


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "192.168.7.7"])
def test_addresses_and_localhost_are_served(page: ServedPage, host: str) -> None:
    assert page.ask("/", Host=f"{host}:{page.port}").status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil.example"])
def test_a_name_that_is_not_ours_is_refused_so_that_no_site_can_take_our_address(page: ServedPage, host: str) -> None:
    answer = page.ask("/", Host=host)
    assert (answer.status, answer.text.count("\n")) == (421, 1)


def test_a_name_that_was_given_is_served(tmp_path: Path) -> None:
    with served(ProducerSettings(store=str(tmp_path)), names=("photos.lan",)) as page:  # type: ignore[arg-type]
        assert page.ask("/", Host="Photos.lan:8765").status == 200
        assert page.ask("/", Host="other.lan").status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_other_sites_may_not_ask(page: ServedPage, origin: str) -> None:
    assert page.ask("/", Origin=origin).status == 403
    assert page.ask("/submit", form={"folder": "x"}, Origin=origin).status == 403


def test_a_form_of_another_site_is_refused_where_the_browser_says_so(page: ServedPage) -> None:
    assert page.ask("/allow", form={"token": "x"}, Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(page: ServedPage, method: str) -> None:
    assert page.ask("/", method=method).status == 405


@pytest.mark.parametrize("path", ["/", "/nothing", "/jobs/absent", "/static/page.css"])
def test_every_answer_says_what_a_browser_may_do_with_it(page: ServedPage, path: str) -> None:
    headers = page.ask(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_no_page_has_a_style_or_a_script_inside(page: ServedPage) -> None:
    text = page.ask("/").text
    assert "style=" not in text
    assert "<style" not in text
    assert text.count("<script") == text.count('<script type="module" src="/static/') == 1


def test_on_the_network_it_asks_for_the_token_once_and_takes_it_out_of_the_address(tmp_path: Path) -> None:
    with served(ProducerSettings(store=str(tmp_path)), token="s3cret") as page:
        assert page.ask("/").status == 401
        assert page.ask("/?token=wrong").status == 401
        assert page.ask("/static/page.css").status == 401
        first = page.ask("/jobs?token=s3cret&page=2")
        assert (first.status, first.headers["location"]) == (303, "/jobs?page=2")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert page.ask("/", Cookie=cookie.split(";")[0]).status == 200
        assert page.ask("//evil.example/?token=s3cret").headers["location"] == "/evil.example/"


@pytest.mark.parametrize(
    ("bind", "found"),
    [
        ("127.0.0.1:8765", ("127.0.0.1", 8765)),
        ("127.0.0.1", ("127.0.0.1", 8765)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:9000", ("::1", 9000)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ],
)
def test_where_it_listens(bind: str, found: tuple[str, int]) -> None:
    assert address_of(bind) == found


@pytest.mark.parametrize("bind", ["", "nowhere:80", "127.0.0.1:99999", "127.0.0.1:x", "1.2.3:80"])
def test_no_address_is_one_line(bind: str) -> None:
    with pytest.raises(OptionError, match=r"expected an address and a port, such as 127\.0\.0\.1:8765"):
        address_of(bind)
