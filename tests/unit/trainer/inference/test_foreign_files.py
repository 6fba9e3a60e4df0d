"""A `.tflite` that is another than asked for: `predict`, `evaluate` and the page say what it is and what is missing."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from producer.page.try_it import model_facts, read_model
from shared.errors import ExportError
from shared.model.description import description_archive
from shared.storage import Storage
from tests.unit.trainer.exported import Exported
from tests.unit.trainer.hostile import labelled, without_archive
from tests.unit.trainer.inference.test_model_file_commands import put_model, run, store
from tests.unit.trainer.tflite.test_partitions import converted, convolved
from trainer.evaluate_photos import evaluate_photos
from trainer.inference.detector import Detector
from trainer.rerun import evaluate_run
from trainer.tflite.convert import DECODING

__all__ = ["store"]  # the fixture

NO_DESCRIPTION = "no voc2tflite description in it: another program made it, or it is cut short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A file, and what is said of it; the page, which does not load the network, may say it in other words."""

    make: Callable[[Exported], bytes]
    said: str
    on_the_page: str


def of_the_other_form(exported: Exported) -> bytes:
    """Suppression inside, and a description that says how to decode without."""
    content = without_archive(exported.forms["int8"])
    description = replace(exported.model.description, form="int8_raw", decoding=DECODING)
    return content + description_archive(len(content), description)


OUTSIDE = "its suppression (NMS) is outside"
CASES = {
    "somebody else's": Case(make=lambda _: converted(convolved), said=NO_DESCRIPTION, on_the_page=NO_DESCRIPTION),
    "without metadata": Case(
        make=lambda exported: without_archive(exported.forms["int8"]), said=NO_DESCRIPTION, on_the_page=NO_DESCRIPTION
    ),
    "described as the other form": Case(
        make=of_the_other_form, said="has a decoding, but suppression is inside it", on_the_page=OUTSIDE
    ),
    "the other form": Case(
        make=lambda exported: without_archive(exported.raw["int8"]) + labelled(),
        said="its suppression is outside, and voc2tflite.json does not say how",
        on_the_page=OUTSIDE,
    ),
    "truncated": Case(
        make=lambda exported: exported.forms["int8"][:5000], said=NO_DESCRIPTION, on_the_page=NO_DESCRIPTION
    ),
    "a zip that is no zip": Case(
        make=lambda exported: without_archive(exported.forms["int8"]) + b"PK\x03\x04" + b"\xa5" * 300,
        said="that can be read ('File is not a zip file')",
        on_the_page="that can be read ('File is not a zip file')",
    ),
}
every_case = pytest.mark.parametrize("name", CASES)


def checked(text: str, url: str, said: str) -> None:
    """One line: which file, what was found, what was expected, what to do."""
    assert re.fullmatch(rf"{re.escape(url)}: .+; expected .+; .+", text), text
    assert said in text


@every_case
def test_predict_refuses_a_foreign_file_in_one_line(name: str, exported: Exported, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(CASES[name].make(exported))
    with pytest.raises(ExportError) as caught:
        Detector(path)
    checked(str(caught.value), str(path), CASES[name].said)


@every_case
def test_evaluate_of_a_file_refuses_a_foreign_file_in_one_line(name: str, exported: Exported, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(CASES[name].make(exported))
    with pytest.raises(ExportError) as caught:
        evaluate_photos(path, str(tmp_path), shown=str(path), split=None, options=[], threads=1)
    checked(str(caught.value), str(path), CASES[name].said)


@every_case
def test_evaluate_of_a_run_refuses_a_foreign_file_in_one_line(name: str, exported: Exported, store: Storage) -> None:
    url = put_model(store, CASES[name].make(exported))
    with pytest.raises(ExportError) as caught:
        evaluate_run("tiny-run", storage=store, split="test", forms=["int8"])
    checked(str(caught.value), url, CASES[name].said)


@every_case
def test_the_page_refuses_a_foreign_file_in_one_line(name: str, exported: Exported, store: Storage) -> None:
    url = put_model(store, CASES[name].make(exported))
    with pytest.raises(ExportError) as caught:
        model_facts(read_model(store, "tiny-run"), "/model")
    checked(str(caught.value), url, CASES[name].on_the_page)


def test_the_page_takes_what_the_export_makes(exported: Exported, store: Storage) -> None:
    put_model(store, exported.forms["int8"])
    assert model_facts(read_model(store, "tiny-run"), "/model")["name"] == exported.model.description.name


def test_both_commands_end_in_that_line(exported: Exported, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(CASES["somebody else's"].make(exported))
    for words in (("predict", str(path), str(tmp_path)), ("evaluate", str(path), str(tmp_path))):
        ended = run(*words)
        assert ended.code == 1
        assert not any(line.startswith("Traceback") for line in ended.errors)
        checked(ended.errors[-1].removeprefix("error: "), str(path), NO_DESCRIPTION)


def test_evaluate_of_a_form_that_a_run_does_not_have_says_what_makes_it(exported: Exported, store: Storage) -> None:
    url = put_model(store, exported.forms["int8"])
    for form, kind in (("int8_raw", " --nms both"), ("float16", "")):
        with pytest.raises(ExportError) as caught:
            evaluate_run("tiny-run", storage=store, split="test", forms=[form])
        told = f"{url.replace('int8', form)}: no such file; expected a model of run tiny-run: `"
        assert str(caught.value).startswith(told)
        assert re.search(rf"voc2tflite export tiny-run{kind} --store .*` makes it$", str(caught.value))
