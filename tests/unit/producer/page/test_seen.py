"""What a run's model saw, at every threshold: counts as mAP50 matches, the worst photos first, hostile files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.page.facts.seen import counts_at, near_at, quality, read_seen
from producer.page.facts.thresholds import proposals
from producer.page.seen_pages import share_text
from shared.audit.seen import SeenSplit
from shared.errors import FormatError, PlanError
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from tests.browser.served import served
from tests.unit.producer.page.seen_run import NAMES, RUN, box, made_split, make_seen
from tests.unit.producer.page.test_labels import Person
from trainer.evaluation.curves import truth_by_image
from trainer.evaluation.detections_file import choose
from trainer.reporting.gallery import JudgedPicture, judge_picture

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
    assert counts_at(scores, 0.1) == [("cat", 2, 1, 0, 0), ("dog<script>", 0, 0, 0, 1)]
    assert counts_at(scores, 0.5) == [("cat", 1, 2, 0, 0), ("dog<script>", 0, 0, 0, 1)]
    assert counts_at(scores, 0.95) == [("cat", 0, 3, 0, 0), ("dog<script>", 0, 0, 0, 0)]


def chosen(split: SeenSplit, detections: tuple[dict[str, object], ...]) -> JudgedPicture:
    """The second photo of a split as the report judges it."""
    made = choose(split.model_copy(update={"detections": detections}), [NAMES[1]], list(split.labels))
    return judge_picture(made.seen[1], truth_by_image(made.truth)[1], split.labels)


def test_a_box_around_an_object_is_badly_placed_as_the_report_has_it(store: Path) -> None:
    # On b's cat, from 10 to 30: by 12 px too far it overlaps by a quarter; the other one is nowhere; a dog is no cat.
    run = read_seen(rewrite(store, detections=(box(2, 1, 22, 0.8), box(2, 1, 70, 0.7), box(2, 2, 22, 0.6))), RUN)
    kinds = [(one.score, one.is_right, one.is_beside) for one in run.photos[1].shown]
    assert kinds == [(0.8, False, True), (0.7, False, False), (0.6, False, False)]
    scores = run.scores()
    assert counts_at(scores, 0.5) == [("cat", 0, 3, 1, 1), ("dog<script>", 0, 0, 0, 1)]
    assert (near_at(scores, 0.5), near_at(scores, 0.85)) == (1, 0), "of the missed, one has a box around it"
    told = chosen(made_split(), (box(2, 1, 22, 0.8), box(2, 1, 70, 0.7)))
    assert (told.misplaced, len(told.made_up_scores)) == (1, 1), "the report says the same"


def test_an_object_that_a_later_box_finds_is_no_longer_missed_beside_one_badly_placed(store: Path) -> None:
    scores = read_seen(rewrite(store, detections=(box(2, 1, 22, 0.8), box(2, 1, 11, 0.5))), RUN).scores()
    assert [near_at(scores, least) for least in (0.4, 0.5, 0.6, 0.8, 0.9)] == [0, 0, 1, 1, 0]


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
    with pytest.raises(FormatError, match=r"detections_test\.json: .*`export` makes the file again"):
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
    rows = re.findall(r'<th scope="row">([^<]+)</th>' + r'<td class="number" data-is=".*?">(.*?)</td>' * 7, page)
    assert rows == [
        ("cat", "1", "2", "0", "0", "100.0 %", "33.3 %", "50.0 %"),
        ("dog&lt;script&gt;", "0", "0", "0", "1", "0.0 %", "\u2013", "0.0 %"),
        ("all", "1", "2", "0", "1", "50.0 %", "33.3 %", "40.0 %"),
    ]
    assert "highest F1</a>" not in page, "nobody has measured it"
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
            ("missed", "", "missed: cat"),
            ("wrong", "", "made up: dog&lt;script&gt; 0.60"),
            ("missed", " off", "missed: cat"),
            ("missed", "", "missed: cat"),
            ("right", " off", "cat 0.30"),
            ("right", "", "cat 0.90"),
            ("right", "", "cat 0.80"),
        ][:6]
    )
    large = person.read(f"/runs/{RUN}/photos?least=0.5&image=2")
    assert f'href="/runs/{RUN}/photos?least=0.5&amp;image=2"' in page
    assert re.findall(r"<figcaption>(.*?)</figcaption>", large) == ["photos/&lt;b&gt;.png"]
    assert "photo whole" in large
    assert f'href="/runs/{RUN}/photos/2"' not in large.replace("image href", ""), "no link to the bare picture"
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
    assert counts_at(scores, 0.5) == [("cat", 1, 2, 0, 0), ("dog<script>", 0, 0, 0, 1)]


@pytest.mark.parametrize(
    ("asked", "shown"), [("", "0.40"), ("nan", "0.40"), ("-3", "0.01"), ("9", "1.00"), ("x", "0.40")]
)
def test_any_threshold_is_answered(site: str, asked: str, shown: str) -> None:
    assert f"<output>{shown}</output>" in Person(site).read(f"/runs/{RUN}/photos?least={asked}&page=99")


def test_photos_are_asked_for_by_their_number(site: str) -> None:
    person = Person(site)
    assert person.ask(f"/runs/{RUN}/photos/1")[0] == 200
    for other in ("3", "4", "-1", "..%2f1", "99999999999999999999999"):
        assert person.ask(f"/runs/{RUN}/photos/{other}")[0] == 404, other
    assert person.ask("/runs/nobody/photos")[0] == 404


def test_a_badly_placed_box_is_drawn_and_named_as_such_and_the_overlap_is_said(store: Path) -> None:
    rewrite(store, detections=(box(2, 1, 22, 0.8),))
    with served(store) as site:
        page, run = (Person(site).read(f"/runs/{RUN}{end}") for end in ("/photos?least=0.5", "?least=0.5"))
    assert '<rect class="box near" data-score="0.8"' in page
    assert ">badly placed: cat 0.80</text>" in page
    assert 'Missed, with a box that is badly placed: <span id="near">1</span>' in page
    assert "0 found (IoU ≥ 0.5), 3 missed (1 with a box badly placed); 1 box badly placed, 0 made up" in run
    assert all("overlap (IoU) of at least 0.5" in text for text in (page, run))


def test_thresholds_for_few_misses_and_few_false_alarms_are_proposed(site: str, store: Path) -> None:
    found = re.findall(
        r'<a data-least="(.*?)" href="\?least=.*?">.*?: (.*?)</a> <span class="quiet">(.*?)</span>',
        Person(site).read(f"/runs/{RUN}/photos"),
    )
    # Cats are found at 0.3 and 0.9, of three; a dog is made up at 0.6.
    assert found == [
        ("0.30", "few misses", "precision 66.7 %, recall 66.7 %"),
        ("0.61", "few false alarms", "precision 100.0 %, recall 33.3 %"),
    ]
    assert "The slider ends at 0.01: the run keeps no detection of a lower score. Recall there: 66.7 %." in Person(
        site
    ).read(f"/runs/{RUN}/photos")


def test_no_threshold_is_proposed_that_no_score_reaches() -> None:
    row = {"objects": 2, "right": [0.3], "wrong": [0.9]}
    assert [(each.name, each.least) for each in proposals([row], 0.44)] == [("few misses", 0.3), ("highest F1", 0.44)]
    assert proposals([{"objects": 0, "right": [], "wrong": []}], None) == []


def test_a_chosen_threshold_is_a_command_and_leads_to_try_it(site: str, store: Path) -> None:
    path = f"/runs/{RUN}/photos?least=0.21"
    assert "To use this threshold" not in Person(site).read(path), "there is no model"
    Storage(str(store)).write(RunPaths(RUN).int8, b"model")
    page = Person(site).read(path)
    assert f"predict {store}/{RunPaths(RUN).int8} PHOTOS --threshold <span data-least-text>0.21</span></code>" in page
    assert f'<a href="/runs/{RUN}/try?least=0.21">' in page
