"""The page beside real jobs: what it shows while they go on, what it lets a person change, what it never does."""

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from producer.settings import ProducerSettings
from tests.cluster import Cluster, wait_until
from tests.page import Answer, ServedPage, served
from worker.synthetic.shapes import synthesize

TOKEN = "0123456789abcdef"
FUZZ_REQUESTS = int(os.environ.get("VOC_FUZZ_REQUESTS", "600"))
NAME = "<script>alert(1)</script>"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Made-up photos, three of them with a fault; one has a name that is a script."""
    folder = tmp_path / "data" / "voc"
    synthesize(folder, images=24, seed=5)
    annotations = sorted((folder / "Annotations").iterdir())
    text = annotations[0].read_text()
    low, high = (re.search(rf"<{name}>(.*?)</{name}>", text)[1] for name in ("xmin", "xmax"))  # type: ignore[index]
    text = text.replace(f"<xmin>{low}<", f"<xmin>{high}<", 1).replace(f"<xmax>{high}<", f"<xmax>{low}<", 1)
    annotations[0].write_text(text)
    annotations[1].write_text("<annotation><object>")
    picture = folder / "JPEGImages" / f"{annotations[2].stem}.jpg"
    picture.write_bytes(picture.read_bytes()[:400])
    for kind, ending in (("JPEGImages", "jpg"), ("Annotations", "xml")):
        source = folder / kind / f"{annotations[3].stem}.{ending}"
        shutil.copy(source, source.with_name(f"{NAME.replace('/', '_')}.{ending}"))
    return folder


@pytest.fixture
def at_work(cluster: Cluster, photos: Path) -> Cluster:
    """A cluster with a service and a worker on these photos."""
    cluster.data_root = photos.parent
    cluster.serve()
    cluster.worker()
    return cluster


@pytest.fixture
def page(at_work: Cluster) -> Iterator[ServedPage]:
    settings = ProducerSettings(
        broker_url=SecretStr(at_work.broker.url), store=str(at_work.store), data_root=str(at_work.data_root)
    )
    at_work.store.mkdir(parents=True, exist_ok=True)
    with served(settings, change_token=TOKEN) as page:
        yield page


def submitted(cluster: Cluster, photos: Path, job: str = "job") -> None:
    cluster.producer("submit", str(photos), "--job", job, "--no-train", "--shard-images", "4")


def shows(page: ServedPage, path: str, text: str) -> Callable[[], bool]:
    return lambda: text in page.ask(path).text


def test_a_job_is_followed_from_its_submit_to_its_end_and_an_unchanged_page_costs_nothing(
    at_work: Cluster, page: ServedPage, photos: Path
) -> None:
    assert "No jobs yet" in page.ask("/").text
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the list shows that the job is done")
    first = page.ask("/jobs/job")
    assert (first.status, page.ask("/jobs/job", If_None_Match=first.headers["etag"]).status) == (200, 304)
    rows = re.findall(r'<th scope="row">(.*?)</th><td class="number">(.*?)</td>', first.text)
    assert rows[:5] == [
        ("files in the folder", str(sum(path.is_file() for path in photos.rglob("*")))),
        ("photos", "25"),
        ("pairs of photo and XML", "25"),
        ("pairs to be used", "24"),
        ("written into shards", "22"),
    ]
    assert 'findings?kind=annotation_unreadable">1 annotation unreadable' in first.text
    assert 'findings?kind=not_listed">1 left out, as no list names them' in first.text
    # Of a run that was just asked for no step is known.
    at_work.producer("submit", str(photos), "--job", "trained", "--model", "nano")
    wait_until(shows(page, "/", "waits for a trainer"), 60, "the list shows that a run waits")
    assert [page.ask(path).status for path in ("/", "/jobs/trained", "/runs/trained")] == [200, 200, 200]
    assert 'findings?kind=image_unreadable">1 image unreadable' in first.text


def test_findings_show_the_photo_with_the_box_as_read_and_as_written(
    at_work: Cluster, page: ServedPage, photos: Path
) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    found = page.ask("/jobs/job/findings?kind=box_swapped")
    assert "1 finding" in found.text
    (address,) = re.findall(r'<image href="(.*?)"', found.text)
    assert found.text.count('class="box read"') == 1
    assert found.text.count('class="box written"') >= 1
    read = {name: float(re.search(rf'class="box read".*? {name}="(.*?)"', found.text)[1]) for name in ("x", "width")}  # type: ignore[index]
    xml = sorted((photos / "Annotations").glob("shapes*"))[0].read_text()
    corners = sorted(float(re.search(rf"<{name}>(.*?)<", xml)[1]) for name in ("xmin", "xmax"))  # type: ignore[index]
    assert [read["x"], read["x"] + read["width"]] == pytest.approx(corners)
    photo = page.ask(address)
    assert photo.headers["content-type"] == "image/jpeg"
    assert photo.body in {path.read_bytes() for path in (photos / "JPEGImages").iterdir()}


def test_names_are_text_everywhere(at_work: Cluster, page: ServedPage, photos: Path) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    found = page.ask(f"/jobs/job/findings?text={quote('<script>')}")
    assert "<script>alert" not in found.text
    assert "&lt;script&gt;alert(1)" in found.text
    assert unescape(re.findall(r'name="text" value="(.*?)"', found.text)[0]) == "<script>"


def test_a_hostile_store_shows_an_error_in_its_own_place_and_gives_no_file_away(
    at_work: Cluster, page: ServedPage, photos: Path, tmp_path: Path
) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    (tmp_path / "secret.jpg").write_bytes(next((photos / "JPEGImages").glob("shapes*9.jpg")).read_bytes())
    (photos / "JPEGImages" / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    damaged = at_work.store / "jobs" / "damaged"
    damaged.mkdir()
    (damaged / "job.json").write_text(f'{{"job": "{NAME}"')
    rows = ["../../secret.jpg", f"{tmp_path}/secret.jpg", "JPEGImages/link.jpg", "JPEGImages", "nothing.jpg", "a\0b"]
    lines = ["file,object,rank,kind,found,done", *(f"{row},,info,<b>,<i>,x" for row in rows), "broken"]
    (at_work.store / "jobs" / "job" / "lint.csv").write_text("\n".join(lines))
    wait_until(shows(page, "/", "damaged"), 20, "the damaged job is listed")
    listed = page.ask("/").text
    assert listed.count('class="error"') == 1
    assert "state DONE" in listed
    assert NAME not in listed
    assert page.ask("/jobs/damaged").text.count('class="error"') == 1
    for number in range(len(rows)):
        assert page.ask(f"/jobs/job/findings/{number}/photo").status == 404, rows[number]
    assert page.ask("/jobs/job/findings").status == 422
    assert "<b>" not in page.ask("/jobs/job").text


def allowed(page: ServedPage) -> str:
    answer = page.ask("/allow", form={"token": TOKEN})
    assert answer.status == 303
    return answer.headers["set-cookie"].split(";")[0]


def did(page: ServedPage, path: str, cookie: str, **form: str) -> str:
    """Do a deed; what the next page says of it."""
    answer = page.ask(path, form=form, Cookie=cookie)
    assert answer.status == 303, answer.text
    (said,) = re.findall(r'<p class="said" role="status">(.*?)</p>', page.ask(answer.headers["location"]).text)
    return unescape(said)


def test_deeds_do_what_the_command_line_does(at_work: Cluster, page: ServedPage, photos: Path) -> None:
    cookie = allowed(page)
    assert did(page, "/submit", cookie, folder="voc", name="mine") == "mine is submitted: 24 photos"
    wait_until(shows(page, "/", "mine"), 20, "the job is listed")
    assert "cancel" in did(page, "/jobs/mine/cancel", cookie)
    assert at_work.state("mine") == "CANCELLED"
    did(page, "/jobs/mine/retry", cookie)
    wait_until(lambda: at_work.state("mine") == "FINALIZED", 120, "its data set is finished")
    refused = page.ask("/jobs/mine/remove", form={}, Cookie=cookie)
    assert refused.status == 409  # its training goes on
    did(page, "/jobs/mine/cancel", cookie)
    assert page.ask("/jobs/mine/remove", Cookie=cookie).text.count("<button") == 1
    assert did(page, "/jobs/mine/remove", cookie) == "mine is removed"
    assert not (at_work.store / "jobs" / "mine").exists()
    assert len(list((photos / "JPEGImages").iterdir())) == 25


def test_an_audit_is_asked_for_as_by_the_command_line(at_work: Cluster, page: ServedPage, photos: Path) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    cookie = allowed(page)
    assert 'action="/jobs/job/audit"' in page.ask("/jobs/job", Cookie=cookie).text
    assert did(page, "/jobs/job/audit", cookie) == "job.audit-3 is asked for"
    runs = {path.name for path in (at_work.store / "runs").iterdir()}
    assert runs == {"job.audit-3", *(f"job.fold-{number}-of-3" for number in (1, 2, 3))}
    again = at_work.producer("audit", "job", "--no-wait", "--json")
    assert again.returncode == 0  # the very same audit: asked otherwise it would be refused
    refused = page.ask("/jobs/job/audit", form={"quick": "no-such-run"}, Cookie=cookie)
    assert (refused.status, "no run" in refused.text) == (409, True)
    assert page.ask("/jobs/absent/audit", form={}, Cookie=cookie).status == 409


def test_without_a_broker_the_page_says_who_would_have_to_work(
    at_work: Cluster, page: ServedPage, photos: Path
) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    settings = ProducerSettings(store=str(at_work.store), data_root=str(at_work.data_root))
    with served(settings, change_token=TOKEN) as alone:
        cookie = allowed(alone)
        for path, form in (("/submit", {"folder": "voc"}), ("/jobs/job/audit", {})):
            answer = alone.ask(path, form=form, Cookie=cookie)
            assert (answer.status, "nobody would work on it" in answer.text) == (409, True), path
    assert not (at_work.store / "runs").exists() or not list((at_work.store / "runs").iterdir())


@pytest.mark.parametrize("folder", ["", "/etc", "../data", "voc/../..", "absent", "link"])
def test_a_folder_that_is_not_below_the_data_root_is_not_submitted(
    at_work: Cluster, page: ServedPage, folder: str, tmp_path: Path
) -> None:
    (at_work.data_root / "link").symlink_to(tmp_path)
    answer = page.ask("/submit", form={"folder": folder}, Cookie=allowed(page))
    assert answer.status == 409
    assert "<h1>Not done</h1>" in answer.text
    assert "No jobs yet" in page.ask("/").text


def test_nothing_is_changed_without_the_token_or_where_the_page_only_looks(
    at_work: Cluster, page: ServedPage, photos: Path
) -> None:
    submitted(at_work, photos)
    deeds = ("/jobs/job/cancel", "/jobs/job/retry", "/jobs/job/remove", "/jobs/job/audit", "/submit")
    assert page.ask("/allow", form={"token": "wrong"}).status == 403
    answers = [
        page.ask(path, form={"folder": "voc"}, Cookie=f"voc2tflite_changes={token}")
        for path in deeds
        for token in ("", "x")
    ]
    settings = ProducerSettings(store=str(at_work.store), data_root=str(at_work.data_root))
    with served(settings) as only_looks:
        answers += [
            only_looks.ask(path, form={"folder": "voc"}, Cookie=f"voc2tflite_changes={TOKEN}") for path in deeds
        ]
        assert only_looks.ask("/allow", form={"token": ""}).status == 403
        assert "<button" not in only_looks.ask("/").text
    assert {answer.status for answer in answers} == {403}
    assert at_work.wait_for("job").done > 0


def fuzzed(seed: int, count: int) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Requests as nobody means them: paths, queries and forms of broken pieces."""
    random_ = random.Random(seed)
    pieces = [
        "jobs",
        "job",
        "runs",
        "findings",
        "photo",
        "static",
        "parts",
        "compare",
        "..",
        "%2e%2e",
        "%2f",
        "%00",
        "0",
    ]
    pieces += [
        "-1",
        "99999999999999999999",
        "%ff",
        "<script>",
        quote("ü" * 50),
        "a" * 1000,
        "remove",
        "cancel",
        "audit",
        "allow",
    ]
    pieces += [
        "submit",
        "seen",
        "seen.json",
        "try",
        "model.json",
        "files",
        "page.css",
        "%5c..%5c",
        "etc",
        "passwd",
        "",
        ".",
        "litert",
        "%0d%0aX:1",
    ]
    names = ["kind", "text", "page", "run", "token", "said", "%00", "x" * 200]
    for _ in range(count):
        path = "/" + "/".join(random_.choice(pieces) for _ in range(random_.randint(0, 6)))
        query = "&".join(f"{random_.choice(names)}={random_.choice(pieces)}" for _ in range(random_.randint(0, 4)))
        form = {random_.choice(("token", "folder", "name", "x")): random_.choice(pieces)}
        yield f"{path}?{query}" if query else path, form if random_.random() < 0.2 else None


def test_no_request_is_answered_by_an_error_of_ours(at_work: Cluster, page: ServedPage, photos: Path) -> None:
    submitted(at_work, photos)
    wait_until(shows(page, "/", "state DONE"), 120, "the job is done")
    cookie, answers = allowed(page), dict[int, Answer]()
    for path, form in fuzzed(7, FUZZ_REQUESTS):
        sent = path.replace(" ", "%20").encode("ascii", "replace").decode()
        answer = (
            page.ask(sent, form=form) if form is None or "job" in path else page.ask(sent, form=form, Cookie=cookie)
        )
        answers[answer.status] = answer
        assert answer.status in (200, 303, 304, 307) or 400 <= answer.status < 500, (path, form, answer)
        assert b"Traceback" not in answer.body
        assert b"root:" not in answer.body
    assert {200, 404} <= answers.keys()
    assert page.ask("/").status == 200


def test_the_command_says_where_to_look_and_ends_at_ctrl_c(at_work: Cluster) -> None:
    at_work.store.mkdir(parents=True, exist_ok=True)
    process = at_work.start("page", ["-m", "producer", "page", "--bind", "127.0.0.1:0"], user="producer")
    wait_until(lambda: "open http://127.0.0.1:" in at_work.text("page"), 60, "it says where to look")
    found = re.search(r"open http://127\.0\.0\.1:([0-9]+)/ ", at_work.text("page"))
    assert found is not None
    page = ServedPage(int(found[1]))
    wait_until(lambda: page.ask("/").status == 200, 20, "it answers")
    taken = at_work.producer("page", "--bind", f"127.0.0.1:{found[1]}", check=False)
    assert (taken.returncode, taken.stderr.count("\n")) == (1, 1)
    assert "takes a free port" in taken.stderr
    modules = subprocess.run(["cat", f"/proc/{process.pid}/maps"], capture_output=True, text=True, check=False).stdout
    assert "tensorflow" not in modules
    assert "matplotlib" not in modules
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert "Traceback" not in at_work.text("page")
