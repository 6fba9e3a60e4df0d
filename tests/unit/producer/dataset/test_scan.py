import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.dataset.pairing import Pairing, image_stem, pair_files
from producer.dataset.scan import ScannedFolder, Walk
from tests.unit.producer.folders import write

# One word, its accent as part of the letter (NFC) and as a character of its own (NFD, as macOS writes names).
COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


def scan(root: Path, data_root: Path | None = None) -> tuple[Pairing, Walk]:
    walk = Walk(root, data_root or root)
    return pair_files(walk, lambda paths: [()] * len(paths)), walk


def paired(root: Path, *paths: str) -> Pairing:
    for path in paths:
        write(root, path)
    return scan(root)[0]


@pytest.mark.parametrize(
    ("image", "annotation"),
    [
        ("a.jpg", "a.xml"),
        ("JPEGImages/a.jpg", "Annotations/a.xml"),
        ("VOC2007/JPEGImages/a.jpg", "VOC2007/Annotations/a.xml"),
        ("images/a.png", "annots/a.xml"),
        ("train/a.jpg", "train/a.xml"),
        ("train/images/a.jpg", "train/annotations/a.xml"),
        ("images/train/a.jpg", "annotations/train/a.xml"),
        ("a.jpg", "annotations/a.xml"),
        ("pics/day 1/a.jpg", "boxes/a.xml"),
        ("a.JPG", "a.XML"),
        ("sub/Bild übergroß 图.jpeg", "sub/Bild übergroß 图.xml"),
        ("a.b.c.jpg", "a.b.c.xml"),
        ("back\\slash.jpg", "back\\slash.xml"),
    ],
)
def test_a_picture_finds_its_xml(tmp_path: Path, image: str, annotation: str) -> None:
    result = paired(tmp_path, image, annotation)
    assert result.pairs == [(image, annotation)]
    assert not result.findings
    assert not result.images + result.annotations


def test_same_stems_in_other_folders_stay_apart(tmp_path: Path) -> None:
    result = paired(tmp_path, "train/a.jpg", "train/a.xml", "valid/a.jpg", "valid/a.xml")
    assert result.pairs == [("train/a.jpg", "train/a.xml"), ("valid/a.jpg", "valid/a.xml")]


def test_same_folder_goes_before_sibling_folder(tmp_path: Path) -> None:
    result = paired(tmp_path, "images/a.jpg", "images/a.xml", "annotations/a.xml")
    assert result.pairs == [("images/a.jpg", "images/a.xml")]
    assert result.annotations == ["annotations/a.xml"]


def test_sibling_folders_go_before_the_rest_of_the_tree(tmp_path: Path) -> None:
    result = paired(
        tmp_path, "one/images/a.jpg", "one/annots/a.xml", "two/images/a.jpg", "two/annots/a.xml", "three/b.jpg"
    )
    assert result.pairs == [("one/images/a.jpg", "one/annots/a.xml"), ("two/images/a.jpg", "two/annots/a.xml")]
    assert result.images == ["three/b.jpg"]


@pytest.mark.parametrize(
    ("images", "annotations"),
    [
        (["train_images", "test_images"], ["train_annotations", "test_annotations"]),
        (["TrainImages", "TestImages"], ["TrainXMLs", "TestXMLs"]),
        (["JPEGImages_sub", "JPEGImages_sub_train"], ["Annotations_sub"]),
        (["VID/Data/train/one", "VID/Data/train/two"], ["VID/Annotations/train/one", "VID/Annotations/train/two"]),
        (["Apple", "Orange"], ["Apple/To_PASCAL_XML", "Orange/outputs"]),
        (["train/MOT17-02/img1", "train/MOT17-04/img1"], ["train/MOT17-02/gt", "train/MOT17-04/gt"]),
        (["training/image_2", "testing/image_2"], ["training/Annotations"]),
    ],
)
def test_of_several_photos_of_one_name_the_one_in_a_folder_that_belongs_to_that_of_the_xml_is_meant(
    tmp_path: Path, images: list[str], annotations: list[str]
) -> None:
    result = paired(tmp_path, *(f"{folder}/1.jpg" for folder in images), *(f"{folder}/1.xml" for folder in annotations))
    wanted = [(f"{image}/1.jpg", f"{xml}/1.xml") for image, xml in zip(images, annotations, strict=False)]
    assert (result.pairs, result.ambiguous) == (sorted(wanted), set())


@pytest.mark.parametrize(
    "paths",
    [
        ["a.jpg", "a.png", "a.xml"],
        ["a.jpg", "a.xml", "a.XML"],
        ["images/a.jpg", "imgs/a.jpg", "annots/a.xml"],
        ["x/a.jpg", "y/a.jpg", "z/a.xml"],
    ],
)
def test_an_ambiguous_stem_is_quarantined_and_every_candidate_named(tmp_path: Path, paths: list[str]) -> None:
    result = paired(tmp_path, *paths)
    assert not result.pairs
    assert result.ambiguous == set(paths)
    assert {finding.kind for finding in result.findings} == {"ambiguous_stem"}
    assert all(path in finding.found for path in paths for finding in result.findings)


def test_a_stem_that_is_also_in_a_pair_is_not_unique(tmp_path: Path) -> None:
    result = paired(tmp_path, "one/a.jpg", "one/a.xml", "two/a.jpg", "three/a.xml")
    assert result.pairs == [("one/a.jpg", "one/a.xml")]
    assert result.ambiguous == {"two/a.jpg", "three/a.xml"}
    assert "one/a.jpg" in result.findings[0].found


def test_orphans_are_listed(tmp_path: Path) -> None:
    result = paired(tmp_path, "a.jpg", "b.xml", "c.jpg", "c.xml")
    assert (result.images, result.annotations, len(result.pairs)) == (["a.jpg"], ["b.xml"], 1)


def names(**named: list[str]) -> dict[str, list[str]]:
    return {f"{stem}.xml": values for stem, values in named.items()}


def by_name(paths: list[str], named: dict[str, list[str]]) -> Pairing:
    folders: dict[str, ScannedFolder] = {}
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        scanned = folders.setdefault(folder, ScannedFolder(path=folder, images=[], annotations=[], lists=[]))
        (scanned.annotations if name.endswith(".xml") else scanned.images).append(name)
    return pair_files(folders.values(), lambda paths: [named.get(path.rpartition("/")[2], []) for path in paths])


@pytest.mark.parametrize(
    "named", [["cat.jpg"], ["cat.JPEG"], ["cat"], ["", "C:\\photos\\cat.jpg"], ["/home/me/cat.jpg"], ["no.jpg", "cat"]]
)
def test_the_xml_names_its_picture_where_its_own_stem_does_not(named: list[str]) -> None:
    result = by_name(["0001.xml", "cat.jpg", "dog.jpg"], {"0001.xml": named})
    assert result.pairs == [("cat.jpg", "0001.xml")]
    assert result.images == ["dog.jpg"]


@pytest.mark.parametrize(("image", "named"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_stem_pairs_however_its_accents_are_written(image: str, named: str) -> None:
    photo, xml = f"JPEGImages/{image}.jpg", f"Annotations/{named}.xml"
    assert by_name([photo, xml], {}).pairs == [(photo, xml)]
    assert by_name([photo, "1.xml"], {"1.xml": [f"{named}.jpg"]}).pairs == [(photo, "1.xml")]


def test_stems_that_look_the_same_and_are_two_pairs_stay_two() -> None:
    files = [f"{stem}.{extension}" for stem in (COMPOSED, DECOMPOSED) for extension in ("jpg", "xml")]
    assert by_name(files, {}).pairs == [(f"{stem}.jpg", f"{stem}.xml") for stem in (DECOMPOSED, COMPOSED)]
    without = by_name(files[:-1], {})
    assert (without.pairs, without.images) == ([(f"{COMPOSED}.jpg", f"{COMPOSED}.xml")], [f"{DECOMPOSED}.jpg"])


def test_the_stem_of_the_xml_decides_against_its_filename() -> None:
    result = by_name(["cat.xml", "cat.jpg", "dog.jpg"], {"cat.xml": ["dog.jpg"]})
    assert result.pairs == [("cat.jpg", "cat.xml")]


def test_two_xml_files_that_name_one_picture_are_quarantined() -> None:
    result = by_name(["1.xml", "2.xml", "cat.jpg"], {"1.xml": ["cat.jpg"], "2.xml": ["cat.jpg"]})
    assert not result.pairs
    assert result.ambiguous == {"1.xml", "2.xml", "cat.jpg"}


def test_a_named_picture_in_the_own_folder_goes_first() -> None:
    result = by_name(["x/1.xml", "x/cat.jpg", "y/cat.jpg"], {"1.xml": ["cat.jpg"]})
    assert result.pairs == [("x/cat.jpg", "x/1.xml")]
    assert result.images == ["y/cat.jpg"]


def test_a_named_picture_far_away_must_be_unique() -> None:
    result = by_name(["w/cat.jpg", "w/cat.xml", "x/1.xml", "y/cat.jpg"], {"1.xml": ["cat.jpg"]})
    assert result.pairs == [("w/cat.jpg", "w/cat.xml")]
    assert result.ambiguous == {"x/1.xml", "y/cat.jpg"}


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.jpg", "a"), ("a.0001", "a.0001"), ("d\\e/a.b.PNG", "a.b"), (" a.jpg ", "a"), ("", ""), ("2007_01", "2007_01")],
)
def test_image_stem_of_a_written_name(name: str, stem: str) -> None:
    assert image_stem(name) == stem


paths = st.builds(
    "{}{}.{}".format,
    st.sampled_from(["", "a/", "a/images/", "a/annots/", "b/", "b/c/"]),
    st.sampled_from(["x", "y", "z", "ü"]),
    st.sampled_from(["jpg", "png", "xml"]),
)


@settings(deadline=None)
@given(st.lists(paths, unique=True), st.dictionaries(st.sampled_from(["x.xml", "y.xml"]), st.just(["z.jpg", "ü"])))
def test_each_file_ends_in_exactly_one_place(files: list[str], named: dict[str, list[str]]) -> None:
    result = by_name(files, named)
    places = [*(path for pair in result.pairs for path in pair), *result.images, *result.annotations, *result.ambiguous]
    assert sorted(places) == sorted(files)


def test_a_link_that_leaves_the_data_root_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside/secret.jpg")
    write(tmp_path, "root/set/a.xml")
    (tmp_path / "root/set/a.jpg").symlink_to(outside)
    (tmp_path / "root/set/more").symlink_to(outside.parent)
    result, walk = scan(tmp_path / "root/set", tmp_path / "root")
    assert not result.pairs
    assert [(finding.file, finding.kind) for finding in walk.findings] == [
        ("a.jpg", "link_outside"),
        ("more", "link_outside"),
    ]


def test_links_inside_the_data_root_are_followed(tmp_path: Path) -> None:
    write(tmp_path, "pool/x.jpg")
    write(tmp_path, "shared/b.jpg")
    write(tmp_path, "shared/b.xml")
    write(tmp_path, "set/a.xml")
    (tmp_path / "set/a.jpg").symlink_to("../pool/x.jpg")
    (tmp_path / "set/more").symlink_to(tmp_path / "shared")
    result, walk = scan(tmp_path / "set", tmp_path)
    assert result.pairs == [("a.jpg", "a.xml"), ("more/b.jpg", "more/b.xml")]
    assert not walk.findings


@pytest.mark.parametrize("target", ["..", ".", "../set/sub", "../.."])
def test_links_in_a_circle_are_walked_once(tmp_path: Path, target: str) -> None:
    write(tmp_path, "set/sub/a.jpg")
    write(tmp_path, "set/sub/a.xml")
    (tmp_path / "set/again").symlink_to(target)
    result, walk = scan(tmp_path / "set", tmp_path)
    assert result.pairs == [("sub/a.jpg", "sub/a.xml")]
    assert [finding.kind for finding in walk.findings] in (["link_repeats"], ["link_outside"])


def test_a_folder_linked_twice_is_walked_once(tmp_path: Path) -> None:
    write(tmp_path, "shared/deep/b.jpg")
    write(tmp_path, "set/a.jpg")
    (tmp_path / "set/one").symlink_to(tmp_path / "shared")
    (tmp_path / "set/two").symlink_to(tmp_path / "shared/deep")
    result, walk = scan(tmp_path / "set", tmp_path)
    assert result.images == ["a.jpg", "one/deep/b.jpg"]
    assert [(finding.file, finding.kind) for finding in walk.findings] == [("two", "link_repeats")]


def test_broken_links_and_pipes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(tmp_path / "b.jpg")
    (tmp_path / "c.jpg").symlink_to("b.jpg")
    result, walk = scan(tmp_path)
    assert not result.images
    assert [(finding.file, finding.kind) for finding in sorted(walk.findings, key=lambda finding: finding.file)] == [
        ("a.jpg", "link_broken"),
        ("b.jpg", "not_a_file"),
        ("c.jpg", "not_a_file"),
    ]


def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")).write_bytes(b"")
    result, walk = scan(tmp_path)
    assert not result.images
    assert [(finding.file, finding.kind) for finding in walk.findings] == [("caf\\xe9.jpg", "name_not_utf8")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb.jpg", "a\\nb.jpg"),
        ("a\u2028b.jpg", "a\\u2028b.jpg"),
        ("a\u2029b.xml", "a\\u2029b.xml"),
        ("a\x85b.jpg", "a\\x85b.jpg"),
        ("\x1b[31m.jpg", "\\x1b[31m.jpg"),
        ("a\x7fb.txt", "a\\x7fb.txt"),
    ],
)
def test_a_name_with_a_control_character_is_refused_and_shown_escaped(tmp_path: Path, name: str, shown: str) -> None:
    write(tmp_path, name)
    write(tmp_path, f"folder {name}/a.jpg")
    result, walk = scan(tmp_path)
    assert not result.images + result.annotations
    assert sorted((finding.file, finding.kind, finding.rank) for finding in walk.findings) == [
        (path, "name_control_character", "quarantined") for path in sorted([shown, f"folder {shown}"])
    ]


def test_a_name_that_is_not_utf8_is_shown_without_control_characters(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\x1b.jpg")).write_bytes(b"")
    assert [(finding.file, finding.kind) for finding in scan(tmp_path)[1].findings] == [
        ("caf\\xe9\\x1b.jpg", "name_not_utf8")
    ]


@pytest.mark.parametrize("name", ["no\u00a0break", "zero\u200dwidth", "right\u202eto left", "private\ue000"])
def test_letters_that_are_not_seen_are_letters(tmp_path: Path, name: str) -> None:
    assert paired(tmp_path, f"{name}.jpg", f"{name}.xml").pairs == [(f"{name}.jpg", f"{name}.xml")]


def test_hidden_files_are_counted_and_folders_of_masks_named(tmp_path: Path) -> None:
    walk = Walk(tmp_path, tmp_path)
    for path in (".git/a.jpg", "._a.jpg", "SegmentationClass/a.png", "__MACOSX/a.jpg", "readme.txt", "a.jpg"):
        write(tmp_path, path)
    assert [folder.images for folder in walk] == [["a.jpg"]]
    assert dict(walk.counts) == {"files": 2, "folders": 1, "hidden": 2, "other_files": 1}
    assert walk.others == {".txt": 1}
    named = sorted((finding.file, finding.kind, finding.rank) for finding in walk.findings)
    assert named == [("SegmentationClass", "folder_left_out", "info"), ("__MACOSX", "folder_left_out", "info")]


def test_copies_with_labels_drawn_into_them_are_no_photos(tmp_path: Path) -> None:
    drawn = ("AnnotationsVisualization", "SegmentationClassVisualization", "SegmentationObjectVisualization")
    for path in ("JPEGImages/a.jpg", "Annotations/a.xml", *(f"{name}/a.jpg" for name in drawn)):
        write(tmp_path, path)
    result, walk = scan(tmp_path)
    assert (result.pairs, result.images) == ([("JPEGImages/a.jpg", "Annotations/a.xml")], [])
    assert sorted(finding.file for finding in walk.findings) == sorted(drawn)
    assert {finding.found for finding in walk.findings} == {
        "copies with the labels drawn into them, as labelme writes them, not photos"
    }


def test_a_photo_whose_name_begins_with_a_dot_is_named_and_what_macos_adds_is_not(tmp_path: Path) -> None:
    for name in (".a.jpg", "..b.JPG", "._c.jpg", ".jpg", ".DS_Store", ".d.xml", "e.jpg"):
        write(tmp_path, name)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/.caf\xe9.jpg")).write_bytes(b"")
    result, walk = scan(tmp_path)
    assert (result.images, walk.counts["hidden"]) == (["e.jpg"], 7)
    named = sorted((finding.file, finding.kind, finding.done) for finding in walk.findings)
    assert named == [(name, "photo_hidden", "left out; rename it") for name in ("..b.JPG", ".a.jpg", ".caf\\xe9.jpg")]


def test_a_store_inside_the_photos_is_no_photos_and_folders_of_its_names_alone_are(tmp_path: Path) -> None:
    for path in ("a.jpg", "out/runs/a/plots/worst.jpg", "out/jobs/a/job.json", "out/weights/b.jpg", "out/mine/c.jpg"):
        write(tmp_path, path)
    for path in ("other/runs/d.jpg", "other/jobs/e.jpg"):
        write(tmp_path, path)
    result, walk = scan(tmp_path)
    assert sorted(result.images) == ["a.jpg", "other/jobs/e.jpg", "other/runs/d.jpg", "out/mine/c.jpg"]
    (finding,) = [each for each in walk.findings if each.kind == "folder_left_out"]
    assert (finding.file, finding.found) == ("out", "jobs and models that this program has made, not photos")


def test_split_lists_of_the_devkit_are_noticed(tmp_path: Path) -> None:
    for name in ("train.txt", "trainval.txt", "aeroplane_train.txt"):
        write(tmp_path, f"VOC2007/ImageSets/Main/{name}")
    assert [folder.lists for folder in Walk(tmp_path, tmp_path) if folder.lists] == [["train.txt", "trainval.txt"]]


def test_stems_that_differ_in_case_only_are_a_pair_if_no_other_could_be_meant(tmp_path: Path) -> None:
    result = paired(tmp_path, "IMG_1.JPG", "img_1.xml", "b/A.jpg", "c/a.xml", "d/a.jpg", "d/a.xml")
    assert result.pairs == [("IMG_1.JPG", "img_1.xml"), ("d/a.jpg", "d/a.xml")]
    assert {"b/A.jpg", "c/a.xml"} <= result.ambiguous | {*result.images, *result.annotations}


def test_a_list_where_none_is_read_is_named(tmp_path: Path) -> None:
    for path in ("train.txt", "a/Valid.TXT", "ImageSets/Segmentation/train.txt", "notes.txt"):
        write(tmp_path, path)
    _, walk = scan(tmp_path)
    assert [finding.file for finding in walk.findings] == ["train.txt", "a/Valid.TXT"]
    assert {finding.kind for finding in walk.findings} == {"list_not_read"}


def test_the_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    wanted = ["b/2.jpg", "a/3.jpg", "a/1.jpg", "c.jpg", "a b/1.jpg"]
    for path in wanted:
        write(tmp_path, path)
    folders = [(folder.path, folder.images) for folder in Walk(tmp_path, tmp_path)]
    assert folders == [("", ["c.jpg"]), ("a", ["1.jpg", "3.jpg"]), ("a b", ["1.jpg"]), ("b", ["2.jpg"])]
