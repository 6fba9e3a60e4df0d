"""The shape of the house in figures: `python -m tests.house [ROOT]`. Exit code 1 where a bound is broken.

What is counted: physical lines of Python files; functions with their decorators left out, from `def` to the last line;
public definitions are modules, classes, functions and methods without a leading underscore, nested functions left out.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PRODUCT: Final = ("producer", "worker", "trainer", "shared")
MOST_MODULES: Final = 14
MOST_P90: Final = 25
# A longer function says why with `# long: …` in the line of its `def`.
MOST_LINES: Final = 45

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What is counted of one checkout."""

    modules: dict[str, int]
    lines: dict[str, int]
    functions: list[int]
    too_long: list[str]
    undocumented: list[str]
    test_lines: int


def look(root: Path) -> House:
    """Count the checkout `root`."""
    files = sorted(path for package in PRODUCT for path in (root / package).rglob("*.py"))
    modules = Counter(path.parent.relative_to(root).as_posix() for path in files if path.name != "__init__.py")
    lines = Counter[str]()
    lengths: list[int] = []
    too_long: list[str] = []
    undocumented: list[str] = []
    for path in files:
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        lines[name.split("/")[0]] += text.count("\n")
        tree = ast.parse(text)
        undocumented.extend(f"{name}: {what}" for what in _without_docstring(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                lengths.append(length)
                if length > MOST_LINES and "# long:" not in text.splitlines()[node.lineno - 1]:
                    too_long.append(f"{name}:{node.lineno} {node.name} ({length} lines)")
    tests = [path for path in (root / "tests").rglob("*.py") if "bench" not in path.relative_to(root).parts]
    return House(
        modules=dict(modules),
        lines=dict(lines),
        functions=sorted(lengths),
        too_long=too_long,
        undocumented=undocumented,
        test_lines=sum(path.read_text(encoding="utf-8").count("\n") for path in tests),
    )


def _without_docstring(tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "module"
    nodes: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    for prefix, node in nodes:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            yield f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            nodes.extend((f"{node.name}.", inner) for inner in node.body)


def main() -> int:
    """Print the figures, then each place that breaks a bound."""
    house = look(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    product = sum(house.lines.values())
    p90 = house.functions[int(len(house.functions) * 0.9)]
    crowded = {folder: count for folder, count in house.modules.items() if count > MOST_MODULES}
    most = max(house.modules, key=lambda folder: house.modules[folder])
    print(f"modules a folder    at most {house.modules[most]} ({most}), in {len(house.modules)} folders")
    median, longest = house.functions[len(house.functions) // 2], house.functions[-1]
    print(f"function length     median {median}, p90 {p90}, {longest} at most")
    print(f"functions above {MOST_LINES}  {len(house.too_long)} without a reason")
    print(f"no docstring        {len(house.undocumented)} public definitions")
    print(f"tests : code        {house.test_lines / product:.2f} (tests without benches {house.test_lines})")
    print(f"lines of code       {product} ({', '.join(f'{name} {lines}' for name, lines in house.lines.items())})")
    broken = [f"{folder}: {count} modules" for folder, count in crowded.items()] + house.too_long + house.undocumented
    broken += [f"p90 of function length: {p90}"] if p90 > MOST_P90 else []
    for line in broken:
        print(f"  {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
