"""Photos dealt to the folds of an audit: the same each time, alike ones together, every part its share of all."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import TrainingError
from shared.scenes import scene_of
from trainer.audit.deal import DealtPhoto, deal, torn_scenes, unlearned

SETS = st.lists(st.tuples(st.frozensets(st.integers(1, 4)), st.none() | st.integers(0, 2**256 - 1)), min_size=12)


def photos(*facts: tuple[frozenset[int], int | None]) -> list[DealtPhoto]:
    return [
        DealtPhoto(image_id=number, file_name=f"{number:04}.jpg", classes=classes, hash=picture_hash)
        for number, (classes, picture_hash) in enumerate(facts, start=1)
    ]


@given(facts=SETS, folds=st.integers(2, 5))
def test_every_photo_is_in_one_part_and_the_order_of_the_list_does_not_matter(
    facts: list[tuple[frozenset[int], int | None]], folds: int
) -> None:
    made = photos(*facts)
    dealt = deal(made, folds)
    assert dealt.keys() == {photo.image_id for photo in made}
    assert deal(made[::-1], folds) == dealt
    assert set(dealt.values()) == set(range(1, folds + 1))


def test_parts_are_even_in_photos_and_in_every_class() -> None:
    made = photos(*[(frozenset({1, 2} if at % 3 else {1}), None) for at in range(90)], *[(frozenset({3}), None)] * 9)
    made += [DealtPhoto(image_id=500 + at, file_name=f"empty{at}", classes=frozenset(), hash=None) for at in range(6)]
    dealt = deal(made, 3)
    assert set(Counter(dealt.values()).values()) == {35}
    for class_id in (1, 2, 3):
        counts = Counter(dealt[photo.image_id] for photo in made if class_id in photo.classes)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_photos_that_are_alike_are_in_one_part() -> None:
    alike = (frozenset({1}), 12345 << 60)
    made = photos(alike, *[(frozenset({1}), None)] * 20, alike, alike)
    dealt = deal(made, 3)
    assert len({dealt[number] for number in (1, 22, 23)}) == 1


def of_scenes(*scenes: str, group_by: str | None = None) -> list[DealtPhoto]:
    return [
        replace(photo, file_name=name, scene=scene_of(name, group_by))
        for photo, name in zip(photos(*[(frozenset({1}), None)] * len(scenes)), scenes, strict=True)
    ]


def test_copies_that_roboflow_made_of_one_photo_are_in_one_part() -> None:
    made = of_scenes(*[f"train/{at % 10}_jpg.rf.{at:04x}.jpg" for at in range(30)], "train/other.jpg", "a/other.jpg")
    dealt = deal(made, 3)
    assert torn_scenes(made, dealt) == []
    assert sorted(Counter(dealt.values()).values())[0] >= 9
    assert deal(made[::-1], 3) == dealt


def test_scenes_that_group_by_names_are_in_one_part_and_fewer_than_parts_are_torn_and_named() -> None:
    clips = [f"clips/{clip}_{at:03}.jpg" for clip in "abc" for at in range(8)]
    made = of_scenes(*clips, group_by="(.*)_")
    dealt = deal(made, 3)
    assert (torn_scenes(made, dealt), sorted(Counter(dealt.values()).values())) == ([], [8, 8, 8])
    few = of_scenes(*clips[:16], group_by="(.*)_")
    dealt = deal(few, 3)
    assert torn_scenes(few, dealt) == ["clips/a", "clips/b"]
    assert set(dealt.values()) == {1, 2, 3}


def test_photos_alike_bring_their_scenes_together() -> None:
    made = photos(*[(frozenset({1}), None)] * 20)
    made = [replace(photo, scene=str(place // 4)) for place, photo in enumerate(made)]
    made[0], made[19] = (replace(made[at], hash=12345 << 60) for at in (0, 19))
    dealt = deal(made, 3)
    assert len({dealt[photo.image_id] for photo in (*made[:4], *made[16:])}) == 1


def test_fewer_photos_than_folds_are_refused() -> None:
    with pytest.raises(TrainingError, match="2 photos cannot be dealt to 3 folds"):
        deal(photos((frozenset({1}), None), (frozenset({1}), None)), 3)


def test_a_class_on_one_photo_is_unlearned_by_the_fold_that_holds_it_out() -> None:
    made = photos(*[(frozenset({1}), None)] * 8, (frozenset({1, 2}), None))
    dealt = deal(made, 3)
    assert [sorted(unlearned(made, dealt, part)) for part in (1, 2, 3)].count([2]) == 1
    assert unlearned(made, dealt, dealt[9]) == {2}
