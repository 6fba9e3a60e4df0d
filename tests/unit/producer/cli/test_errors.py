"""Every error that a person can cause is one line with the remedy, and an exit code that says whose fault it is."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from producer.jobs.submit import Request
from shared.jobs.identity import find_job
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit

PHOTOS, STORE = "{photos}", "{store}"
NOBODY = {"VOC_BROKER_URL": "redis://127.0.0.1:1/0"}

# Command line, exit code, what the one line says.
OPTIONS = [
    (["submit"], "no folder"),
    (["submit", PHOTOS, "--split", "80/10/20"], "--split 80/10/20: expected three shares that sum to 100"),
    (["submit", PHOTOS, "--split", "80/20"], "--split 80/20: expected three"),
    (["submit", PHOTOS, "--split", "a/b/c"], "--split a/b/c: expected three"),
    (["submit", PHOTOS, "--final", "--patience", "3"], "--final trains on the validation split too"),
    (["submit", PHOTOS, "--model", "tiny"], "'tiny' is not one of 'nano', 'small', 'medium'"),
    (
        ["submit", PHOTOS, "--backbone", "resnet"],
        "'resnet' is not one of 'auto', 'conv', 'efficientnet_lite0', 'efficientnet_lite0_short', "
        "'efficientnet_lite2', 'mobilenet_v2', 'mobilenet_v3_small'",
    ),
    (["submit", PHOTOS, "--batch", "0"], "--batch 0: "),
    (["resume", "nobody", "--local", "--max-drop", "-1"], "--max-drop -1"),
    (["submit", PHOTOS, "--batch", "-4"], "--batch -4: "),
    (["submit", PHOTOS, "--epochs", "many"], "--epochs"),
    (["submit", PHOTOS, "--epochs", "-1"], "--epochs -1: "),
    (["submit", PHOTOS, "--max-minutes", "-3"], "--max-minutes -3"),
    (["submit", PHOTOS, "--max-minutes", "nan"], "--max-minutes"),
    (["submit", PHOTOS, "--max-drop", "-1"], "--max-drop -1"),
    (["submit", PHOTOS, "--image-size", "300"], "--image-size 300: "),
    (["submit", PHOTOS, "--image-size", "0"], "--image-size 0: "),
    (["submit", PHOTOS, "--learning-rate", "5"], "--learning-rate 5"),
    (["submit", PHOTOS, "--mosaic", "2"], "--mosaic 2"),
    (["submit", PHOTOS, "--seed", "-1"], "--seed -1: "),
    (["submit", PHOTOS, "--shard-images", "0"], "--shard-images 0: "),
    (["submit", PHOTOS, "--workers", "0"], "--workers"),
    (["submit", PHOTOS, "--rename", "a"], "--rename a: expected old=new"),
    (["submit", PHOTOS, "--job", "My Job"], "'My Job' is no job name: "),
    (["submit", PHOTOS, "--job", "../up"], "'../up' is no job name: "),
    (["submit", PHOTOS, "--run", "Two"], "'Two' is no run name: "),
    (["submit", PHOTOS, "--run", "two", "--no-train"], "--no-train: expected no option of a training, found --run"),
    (
        ["submit", PHOTOS, "--no-train", "--seed", "1", "--epochs", "5", "--model", "small", "--no-flips"],
        "found --model, --epochs, --flips/--no-flips; leave either out",
    ),
    (["submit", PHOTOS, "--weights", "imagenet"], "--weights imagenet needs a published --backbone"),
    (
        ["submit", PHOTOS, "--backbone", "mobilenet_v2", "--weights", "absent.h5"],
        "--weights absent.h5: expected none, imagenet or a file",
    ),
    (["submit", PHOTOS, "--frobnicate"], "No such option"),
    (["submit", PHOTOS, "--notify", "host"], "--notify host: expected a URL"),
    (["lint", PHOTOS, "--image-size", "31"], "--image-size 31: "),
    (["lint"], "Missing argument 'dataset'"),
    (["rm"], "expected names of jobs, or --older"),
    (["rm", "--older", "soon"], "--older soon: expected a number with h, d or w"),
    (["status", "--run", "two"], "--run two: expected the name of its job too"),
    (["evaluate", "mine", "--html", "x.html"], "--html goes with a MODEL and a FOLDER; run mine has its report.html"),
    (["doctor", "--run", "two"], "--run two: expected the name of its job too"),
    (["status", "a", "b"], "unexpected extra argument"),
    (["nonsense"], "No such command 'nonsense'"),
    (["serve"], "no broker is configured: set VOC_BROKER_URL"),
    (["inspect"], "Missing argument"),
    (["predict", "absent.tflite", PHOTOS], "absent.tflite"),
    (["predict", "{file}", PHOTOS, "--threshold", "2"], "--threshold"),
    (["export", "r", "--max-drop", "-1"], "--max-drop"),
    (["export", "r", "--quantize", "int4"], "--quantize"),
    (["evaluate", "r", "--split", "all"], "'all' is not one of 'train', 'val', 'test'"),
    (["evaluate", "r", "--form", "int4"], "--form int4: expected one of float32, float16, dynamic, int8"),
    (["synthesize", "{file}"], "'{file}' is a file"),
    (["sizes", "--image-size", "33"], "--image-size 33: "),
    (["sizes", "--image-size", "-32"], "--image-size"),
    (["sizes", "--model", "huge"], "--model huge: expected one of nano, small, medium"),
    (["evaluate", "r", "--threads", "1,0"], "--threads 1,0: expected numbers from 1 to 256 with commas"),
    (["evaluate", "r", "--threads", "many"], "--threads many: expected numbers"),
    (["sizes", "--backbone", "resnet"], "--backbone resnet: expected one of conv"),
]
FILE_STORE = "{file}: expected a folder for the store, found a file"
ERRORS = [
    (["submit", "{absent}"], "expected a folder with images and Pascal-VOC XML, found no folder"),
    (["submit", "{file}"], "expected a folder with images and Pascal-VOC XML"),
    (["submit", "{photos}/JPEGImages"], "0 XML files; the XML files are in {photos}/Annotations: give {photos}"),
    (["submit", "{empty}"], "found 0 images, 0 XML files; is it the right folder?"),
    (["lint", "{absent}"], "expected a folder"),
    (["lint", PHOTOS, "--csv", "{absent}/x.csv"], "{absent}/x.csv: No such file or directory"),
    (["submit", "--job", "absent", "--run", "two"], "no job 'absent'"),
    (["submit", PHOTOS, "--store", "{file}"], "{file}: expected a folder for the store, found a file"),
    (["submit", PHOTOS, "--store", "/sys/store"], "cannot make the store /sys/store"),
    (["list", "--store", "nowhere://x"], "nowhere://x: expected a folder, or s3://, gs:// or az:// with a bucket"),
    (["list", "--store", "s3://"], "s3://: expected a folder, or s3://, gs:// or az:// with a bucket"),
    (["list", "--store", "s3://me:word@bucket/x"], "s3://…: expected a folder, or s3://, gs:// or az:// with a bucket"),
    (["list", "--store", "az://box/x?sig=word"], "credentials come from the environment"),
    *(([*words, "--store", "{file}"], FILE_STORE) for words in (["status"], ["list"], ["prune"], ["rm", "a", "--yes"])),
    *(([command, "r", "--store", "{file}"], FILE_STORE) for command in ("inspect", "export", "evaluate", "compare")),
    (["status", "absent"], "no job 'absent' in {store} (there are: none)"),
    (["status", "../etc"], "no job '../etc'"),
    (["watch", "absent"], "no job 'absent'"),
    (["doctor", "absent"], "no job 'absent'"),
    (["cancel", "absent"], "no job 'absent'"),
    (["retry", "absent"], "no job 'absent'"),
    (["resume", "absent"], "no job 'absent'"),
    (["rm", "absent", "--yes"], "no job 'absent'"),
    (["inspect", "absent"], "absent"),
    (["evaluate", "absent"], "{store} holds no run 'absent'"),
    (["export", "absent"], "{store} holds no run 'absent'"),
    (["compare", "absent"], "absent"),
    (["predict", "{file}", PHOTOS], "{file}"),
    (["acl", "{file}"], "{file}"),
]
SETTINGS = [
    ({"VOC_TICK_S": "-1"}, "VOC_TICK_S: "),
    ({"VOC_TICK_S": "soon"}, "VOC_TICK_S: "),
    ({"VOC_LOG_LEVEL": "LOUD"}, "VOC_LOG_LEVEL: "),
    ({"VOC_ATTEMPTS": "0"}, "VOC_ATTEMPTS: "),
    ({"VOC_NOTIFY_URL": "nowhere"}, "VOC_NOTIFY_URL: expected a URL that begins with http:// or https://"),
    ({"VOC_BROKER_URL": "http://host"}, "VOC_BROKER_URL: expected redis://HOST[:PORT]"),
    ({"VOC_BROKER_URL": "redis://127.0.0.1:notaport"}, "VOC_BROKER_URL: expected redis://HOST[:PORT]"),
    ({**NOBODY, "VOC_BROKER_PASSWORD_FILE": "/absent"}, "VOC_BROKER_PASSWORD_FILE"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("errors")
    photos = make_tiny_voc(root / "photos", 12)
    (root / "file").write_text("x")
    (root / "empty").mkdir()
    paths = {"photos": photos, **{name: root / name for name in ("file", "empty", "absent", "store")}}
    return {name: str(path) for name, path in paths.items()}


def call(places: dict[str, str], words: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
    arguments = [word.format(**places) for word in words]
    environment = {**os.environ, "VOC_BROKER_URL": "", "VOC_STORE": places["store"], "COLUMNS": "80", **settings}
    command = [sys.executable, "-m", "shared.command", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=100)


def assert_one_line(ended: subprocess.CompletedProcess[str], code: int, text: str) -> None:
    """The last line of standard error is the error, and the only one; what a report says comes before."""
    lines = ended.stderr.splitlines()
    assert ended.returncode == code, ended.stderr
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], ended.stderr
    assert text in lines[-1]
    assert "Traceback" not in ended.stderr
    assert "pydantic" not in ended.stderr


def named(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(("words", "text"), OPTIONS, ids=named)
def test_a_wrong_option_is_one_line_and_exit_2(places: dict[str, str], words: list[str], text: str) -> None:
    ended = call(places, words)
    assert_one_line(ended, 2, text.format(**places))
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(("words", "text"), ERRORS, ids=named)
def test_a_missing_job_run_or_file_is_one_line_and_exit_1(places: dict[str, str], words: list[str], text: str) -> None:
    assert_one_line(call(places, words), 1, text.format(**places))


@pytest.mark.parametrize(("settings", "text"), SETTINGS, ids=str)
@pytest.mark.parametrize("command", ["list", "serve"])
def test_a_wrong_setting_is_one_line_that_names_it(
    places: dict[str, str], settings: dict[str, str], text: str, command: str
) -> None:
    assert_one_line(call(places, [command], **{**NOBODY, **settings}), 2, text)


@pytest.mark.parametrize(
    ("words", "settings", "text"),
    [
        (["submit", PHOTOS, "--run", "Two"], {}, "'Two' is no run name"),
        (["submit", PHOTOS, "--job", "new", "--run", "taken"], {}, "a job has this name"),
        (["submit", "--job", "taken", "--run", "Two"], {}, "'Two' is no run name"),
        (
            ["submit", "--job", "taken", "--run", "taken", "--model", "nano"],
            {},
            "run 'taken' exists with other options",
        ),
        (["submit", PHOTOS, "--store", "{file}"], {}, FILE_STORE),
        (["submit", PHOTOS], {"VOC_BROKER_URL": "host"}, "VOC_BROKER_URL: expected redis://"),
        (["submit", PHOTOS], {"VOC_BROKER_URL": "redis://h:99999"}, "VOC_BROKER_URL: expected redis://"),
    ],
    ids=named,
)
def test_what_can_be_refused_at_once_is_refused_before_anything_is_said(
    places: dict[str, str], words: list[str], settings: dict[str, str], text: str
) -> None:
    storage, photos = Storage(places["store"]), Path(places["photos"])
    if find_job(storage, "taken") is None:
        request = Request(dataset=photos, name="taken", spec=JobSpec(), run=TrainingOptions())
        lint_and_submit(request, storage=storage, data_root=photos)
    ended = call(places, words, **settings)
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert text.format(**places) in ended.stderr
    assert not ended.stdout


def test_trainer_commands_look_into_the_store_of_the_settings(places: dict[str, str], tmp_path: Path) -> None:
    for command in (["export", "r"], ["evaluate", "r"], ["compare", "r", "s"]):
        ended = call(places, command, VOC_STORE=str(tmp_path / "elsewhere"))
        assert_one_line(ended, 1, f"{tmp_path / 'elsewhere'} holds no run 'r' (there are: none)")


def test_a_broker_that_is_away_is_one_line(places: dict[str, str]) -> None:
    ended = call(places, ["list"], **NOBODY)
    assert (ended.returncode, ended.stderr) == (0, "Redis cannot be reached: this is what the store says\n")


def test_doctor_says_what_to_do_on_lines_that_can_be_copied(places: dict[str, str]) -> None:
    ended = call(places, ["doctor"], **NOBODY)
    assert ended.returncode == 1
    table, remedies = ended.stdout.rstrip().rsplit("┘", 1)
    assert "│ problem │ broker" in table
    assert remedies.splitlines()[1] == "broker: is Redis running, and are VOC_BROKER_URL and its password right?"


@pytest.mark.parametrize("command", ["submit", "rm", "retry", "export", "predict", "doctor"])
def test_help_shows_switches_without_a_type_and_breaks_lines_where_the_terminal_ends(
    places: dict[str, str], command: str
) -> None:
    shown = call(places, [command, "--help"]).stdout
    assert "<bool>" not in shown
    text = shown.split("╭")[0].splitlines()
    # A line that is followed by another of its paragraph is full: the next word had no place in it.
    for line, following in pairwise(line.strip() for line in text):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > 76, line


def test_help_keeps_the_names_of_backbones_whole(places: dict[str, str]) -> None:
    shown = " ".join(call(places, ["submit", "--help"]).stdout.split())
    for name in (
        "efficientnet_lite0,",
        "efficientnet_lite0_short,",
        "efficientnet_lite2,",
        "mobilenet_v2,",
        "mobilenet_v3_small.",
        "mixed_bfloat16.",
    ):
        assert f" {name} " in shown, name
    assert shown.index("--no-train") < shown.index("─ Data ─")
