"""What a run's model saw, at every threshold: counts as mAP50 matches, the worst photos first, hostile files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.page.facts.seen import counts_at, quality, read_seen
from producer.page.seen_pages import share_text
from shared.errors import FormatError, PlanError
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.browser.served import served
from tests.unit.producer.page.seen_run import NAMES, RUN, box, made_split, make_seen
from tests.unit.producer.page.test_labels import Person

FILE = f"{RunPaths(RUN).root}/detections_test.json"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_seen(tmp_path)


@pytest.fixture
def site(store: Path) -> Iterator[str]:
    with served(store, store.parent / "data") as address:
        yield address


def rewrite(store: Path, **changes: object) -> Storage:
    storage = Storage(str(store))
    storage.write(FILE, made_split().model_copy(update=changes).to_json().encode())
    return storage


def test_found_missed_and_made_up_follow_the_threshold(store: Path) -> None:
    scores = read_seen(Storage(str(store)), RUN).scores()
    assert counts_at(scores, 0.1) == [("cat", 2, 1, 0), ("dog<script>", 0, 0, 1)]
    assert counts_at(scores, 0.5) == [("cat", 1, 2, 0), ("dog<script>", 0, 0, 1)]
    assert counts_at(scores, 0.95) == [("cat", 0, 3, 0), ("dog<script>", 0, 0, 0)]


def test_the_surest_takes_the_object_and_a_second_one_on_it_is_made_up(store: Path) -> None:
    storage = rewrite(store, detections=(box(1, 1, 2, 0.7), box(1, 1, 1, 0.8)))
    photo = read_seen(storage, RUN).photos[0]
    assert [(one.score, one.is_right) for one in photo.shown] == [(0.8, True), (0.7, False)]
    assert [one.found_by for one in photo.objects] == [0.8, 0.0]


def test_an_object_goes_before_a_difficult_one_that_is_nearer(store: Path) -> None:
    annotations = (box(1, 1, 4), box(1, 1, 0, ignore=1))
    photo = read_seen(rewrite(store, annotations=annotations, detections=(box(1, 1, 0, 0.9),)), RUN).photos[0]
    assert [(one.score, one.is_right) for one in photo.shown] == [(0.9, True)]


def test_the_worst_photos_come_first_at_each_threshold(store: Path) -> None:
    run = read_seen(Storage(str(store)), RUN)
    assert [photo.file_name for photo in run.worst(0.4)] == [NAMES[1], NAMES[0], NAMES[2]]
    assert [photo.mistakes(0.4) for photo in run.worst(0.4)] == [2, 1, 0]
    assert [photo.mistakes(0.95) for photo in run.worst(0.95)] == [2, 1, 0]


@pytest.mark.parametrize(
    "detections",
    [
        (box(1, 3, 0, 0.5),),
        (box(1, 0, 0, 0.5),),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2], "score": 0.5},),
        ({"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},),
        ({"image_id": "x", "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5},),
    ],
)
def test_a_damaged_file_is_named(store: Path, detections: tuple[dict[str, object], ...]) -> None:
    storage = rewrite(store, detections=detections)
    with pytest.raises(FormatError, match=r"detections_test\.json: .*`export` makes it anew"):
        read_seen(storage, RUN)
    with served(store) as site:
        assert Person(site).ask(f"/runs/{RUN}/photos")[0] == 422


def test_a_run_without_detections_says_how_they_are_made(store: Path) -> None:
    storage = Storage(str(store))
    storage.remove(FILE)
    with pytest.raises(PlanError, match="has no detections"):
        read_seen(storage, RUN)


def test_without_scripts_the_form_asks_the_server(site: str) -> None:
    page = Person(site).read(f"/runs/{RUN}/photos?least=0.5")
    rows = re.findall(r'<th scope="row">([^<]+)</th>' + r'<td class="number">(.*?)</td>' * 6, page)
    assert rows == [
        ("cat", "1", "2", "0", "100.0 %", "33.3 %", "50.0 %"),
        ("dog&lt;script&gt;", "0", "0", "1", "0.0 %", "\u2013", "0.0 %"),
        ("all", "1", "2", "1", "50.0 %", "33.3 %", "40.0 %"),
    ]
    assert "Best threshold" not in page, "nobody has measured it"
    assert page.index("photos/&lt;b&gt;.png</figcaption>") < page.index("photos/a.png</figcaption>")
    # Stretched to 100 px of 200: a box is twice as wide in the photo.
    assert 'data-score="0.9" x="2.0" y="10.0" width="40.0" height="20.0"' in page


def test_each_box_says_its_class_and_score_and_a_photo_opens_large(site: str) -> None:
    person = Person(site)
    page = person.read(f"/runs/{RUN}/photos?least=0.5")
    texts = re.findall(r'<text class="name (\w+)( off)?" .*?>(.*?)</text>', page)
    assert (
        texts
        == [
            ("missed", "", "cat missed"),
            ("wrong", "", "dog&lt;script&gt; 0.60"),
            ("missed", " off", "cat missed"),
            ("missed", "", "cat missed"),
            ("right", " off", "cat 0.30"),
            ("right", "", "cat 0.90"),
            ("right", "", "cat 0.80"),
        ][:6]
    )
    large = person.read(f"/runs/{RUN}/photos?least=0.5&image=2")
    assert f'href="/runs/{RUN}/photos?least=0.5&amp;image=2"' in page
    assert re.findall(r"<figcaption>(.*?)</figcaption>", large) == ["photos/&lt;b&gt;.png"]
    assert "photo whole" in large
    assert 'font-size="5.0"' in large


@pytest.mark.parametrize(
    ("counts", "shares"),
    [
        ((1, 15, 0), ("100.0 %", "6.3 %", "11.8 %")),
        ((0, 0, 0), ("\u2013",) * 3),
        ((0, 3, 0), ("\u2013", "0.0 %", "0.0 %")),
    ],
)
def test_precision_recall_and_f1_are_rounded_as_the_script_rounds_them(
    counts: tuple[int, int, int], shares: tuple[str, ...]
) -> None:
    assert tuple(map(share_text, quality(*counts))) == shares


def test_scores_for_the_slider_say_the_same(site: str) -> None:
    scores = json.loads(Person(site).read(f"/runs/{RUN}/scores.json"))
    assert counts_at(scores, 0.5) == [("cat", 1, 2, 0), ("dog<script>", 0, 0, 1)]


@pytest.mark.parametrize(
    ("asked", "shown"), [("", "0.40"), ("nan", "0.40"), ("-3", "0.05"), ("9", "1.00"), ("x", "0.40")]
)
def test_any_threshold_is_answered(site: str, asked: str, shown: str) -> None:
    assert f"<output>{shown}</output>" in Person(site).read(f"/runs/{RUN}/photos?least={asked}&page=99")


def test_photos_are_asked_for_by_their_number(site: str) -> None:
    person = Person(site)
    assert person.ask(f"/runs/{RUN}/photos/1")[0] == 200
    for other in ("3", "4", "-1", "..%2f1", "99999999999999999999999"):
        assert person.ask(f"/runs/{RUN}/photos/{other}")[0] == 404, other
    assert person.ask("/runs/nobody/photos")[0] == 404
