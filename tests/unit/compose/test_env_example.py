"""`.env.example` names every variable that Compose or a program reads, with its default."""

import re
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from producer.settings import ProducerSettings
from trainer.settings import TrainerSettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = dict(re.findall(r"^#(VOC_\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
COMPOSE_FILES = ("docker-compose.yml", "docker-compose.gpu.yml", "docker-compose.hosts.yml")
# Their defaults differ between the services; the file says so in words.
PER_SERVICE = {"VOC_STALL_S", "VOC_SOFT_STOP_S"}


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_every_default_of_a_compose_file_is_in_the_example(name: str) -> None:
    text = (ROOT / name).read_text()
    for variable, default in re.findall(r"\$\{(VOC_\w+):?-([^}]*)\}", text):
        own = EXAMPLE[variable]
        assert default in ("", own), f"{name} says {variable}={default}, .env.example {own}"


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_every_variable_of_a_compose_file_is_in_the_example(name: str) -> None:
    named = set(re.findall(r"VOC_[A-Z_]+", (ROOT / name).read_text()))
    assert named <= EXAMPLE.keys()


@pytest.mark.parametrize("settings", [ProducerSettings, WorkerSettings, TrainerSettings])
def test_every_setting_is_in_the_example_with_its_default(settings: type[BaseSettings]) -> None:
    for name, field in settings.model_fields.items():
        variable = f"VOC_{name.upper()}"
        default = "" if field.default is None else str(field.default)
        assert variable in EXAMPLE
        assert variable in PER_SERVICE or EXAMPLE[variable] == default, f"{variable} is {default} in {settings}"


@pytest.mark.parametrize(
    ("settings", "variable"), [(WorkerSettings, "VOC_WORKER_STALL_S"), (TrainerSettings, "VOC_TRAINER_STALL_S")]
)
def test_the_stall_of_each_service_has_its_default(settings: type[BaseSettings], variable: str) -> None:
    assert EXAMPLE[variable] == str(settings.model_fields["stall_s"].default)


def test_the_version_is_the_projects() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert EXAMPLE["VOC_VERSION"] == version[1]


@pytest.mark.parametrize("service", ["producer", "worker", "trainer"])
def test_the_image_label_has_the_version(service: str) -> None:
    assert f"ARG VERSION={EXAMPLE['VOC_VERSION']}\n" in (ROOT / service / "Dockerfile").read_text()


@pytest.mark.parametrize("settings", [ProducerSettings, WorkerSettings, TrainerSettings])
def test_compose_hands_every_setting_on_or_fixes_it(settings: type[BaseSettings]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in settings.model_fields:
        assert f"VOC_{name.upper()}:" in text, f"VOC_{name.upper()} does not reach the containers"
