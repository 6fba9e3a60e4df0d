"""The wheel: it installs into an empty environment, every module in it imports, and it claims one name only."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from shared import __version__

pytestmark = pytest.mark.whole

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("producer", "shared", "trainer", "worker")

IMPORT_ALL = """
import importlib, sys
from pathlib import Path
import voc2tflite

root = Path(next(iter(voc2tflite.__path__)))
sys.path.insert(0, str(root))
files = sorted(path.relative_to(root) for path in root.rglob("*.py"))
for file in files:
    parts = file.with_suffix("").parts
    importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
print(len(files), importlib.import_module("shared").__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what the repository holds: setuptools writes into the folder that it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-w", out, source], check=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel; the libraries are those of this one, so that none is loaded."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = str(folder / "bin/python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install"]
    subprocess.run([*pip, "--quiet", "--no-index", "--no-deps", wheel], check=True)
    # After pip, which would take this environment's installation for the one to replace.
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


def call(folder: Path, *words: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command outside of every checkout, with nothing of this process's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VOC_", "PYTHON"))}
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment | settings)


def test_the_wheel_claims_one_name_and_has_every_file(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"voc2tflite", f"voc2tflite-{__version__}.dist-info"}
    files = [path for name in PACKAGES for path in (REPOSITORY / name).rglob("*")]
    wanted = {path for path in files if path.suffix in (".py", ".lua", ".acl", ".j2", ".typed")}
    assert len(wanted) > 150
    assert {f"voc2tflite/{path.relative_to(REPOSITORY).as_posix()}" for path in wanted} <= set(names)


def test_every_module_in_it_imports_from_the_installation(installed: Path, tmp_path: Path) -> None:
    # The two Celery applications name their broker when they are imported.
    done = call(tmp_path, installed / "python", "-c", IMPORT_ALL, VOC_BROKER_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 0, done.stderr
    count, where = done.stdout.split(maxsplit=1)
    assert int(count) == sum(len(list((REPOSITORY / name).rglob("*.py"))) for name in PACKAGES)
    assert where.strip().startswith(str(installed.parent))


@pytest.mark.parametrize("name", PACKAGES)
def test_somebody_s_interpreter_finds_none_of_our_packages(installed: Path, tmp_path: Path, name: str) -> None:
    done = call(tmp_path, installed / "python", "-c", f"import {name}")
    assert f"No module named '{name}'" in done.stderr


def test_its_command_works_outside_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    command = installed / "voc2tflite"
    assert call(tmp_path, command, "--version").stdout == f"voc2tflite {__version__}\n"
    shown = call(tmp_path, command, "--help").stdout
    assert all(name in shown for name in ("submit", "lint", "serve", "inspect", "synthesize", "predict", "export"))
    assert call(tmp_path, command, "synthesize", "voc", "--images", "12").returncode == 0
    linted = call(tmp_path, command, "lint", "voc")
    assert linted.returncode == 0, linted.stderr
    assert linted.stdout.startswith("12 images")
    assert f"next: {command} submit voc\n" in linted.stdout
    assert call(tmp_path, installed / "producer", "lint", "voc").stdout == linted.stdout


def test_its_workers_and_broker_run_outside_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    command = installed / "voc2tflite"
    assert call(tmp_path, command, "synthesize", "voc", "--images", "12").returncode == 0
    done = call(tmp_path, command, "submit", "voc", "--local", "--wait", "--no-train", "--store", "store")
    assert done.returncode == 0, done.stderr
    assert "voc: 3 shards, " in done.stdout
    assert call(tmp_path, command, "inspect", "voc", "--store", "store").returncode == 0
