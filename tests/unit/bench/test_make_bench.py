"""`make bench` gets to its end: what it runs wants no arguments, and one that fails stops none of those after it."""

import ast
import re
from pathlib import Path

import pytest

from tests.bench import __main__ as bench


def wants_arguments(path: Path) -> bool:
    """Whether a bench refuses to run without arguments, by what it gives to `add_argument`."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in (call for call in calls if ast.unparse(call.func).endswith("add_argument")):
        options = {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in call.keywords
            if keyword.arg != "type" and isinstance(keyword.value, ast.Constant)
        }
        is_positional = not ast.literal_eval(call.args[0]).startswith("-")
        if options.get("required") or (is_positional and options.get("nargs") not in ("*", "?")):
            return True
    return False


def test_each_bench_is_run_by_make_or_named_as_one_to_run_by_hand() -> None:
    programs = {path.stem for path in bench.FOLDER.glob("*.py") if '\nif __name__ == "__main__"' in path.read_text()}
    run_by_make = {words[0] for words in bench.SHORT}
    assert run_by_make.isdisjoint(bench.BY_HAND)
    assert run_by_make | set(bench.BY_HAND) == programs - {"__main__"}


def test_what_make_runs_wants_no_arguments() -> None:
    assert not [words[0] for words in bench.SHORT if wants_arguments(bench.FOLDER / f"{words[0]}.py")]
    assert wants_arguments(bench.FOLDER / "audit_worth.py")


def test_a_bench_that_fails_is_named_and_stops_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text("import sys; print('good', *sys.argv[1:])")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    (tmp_path / "slow.py").write_text("print('MISS\\t3 s'); raise SystemExit(1)")
    (tmp_path / "absent.py").write_text("print('skipped: no photos')")
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "SHORT", (("bad",), ("good", "--twice"), ("slow",), ("absent",)))
    monkeypatch.setattr("sys.argv", ["bench"])
    assert bench.main() == 1
    shown = capfd.readouterr().out
    assert "\ngood --twice\n" in shown
    table = [re.split(r"\s{2,}", line.replace(" s  ", "  ")) for line in shown.splitlines()[-4:]]
    assert [(row[0], row[-1]) for row in table] == [
        ("bad", "ended with 3"),
        ("good --twice", "ok"),
        ("slow", "missed"),
        ("absent", "skipped"),
    ]
    for name in ("good", "absent"):
        monkeypatch.setattr("sys.argv", ["bench", name])
        assert bench.main() == 0
    monkeypatch.setattr("sys.argv", ["bench", "slow"])
    assert bench.main() == 1
    monkeypatch.setattr("sys.argv", ["bench", "nothing"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "nothing: expected some of absent, bad, good, slow" in capfd.readouterr().err
