"""Measure the size of modules and functions of etl against the limits we set ourselves.

Lines are non-blank lines. A function counts from `def` to its end without its docstring, for a contract may
take the room it needs; a declared method with nothing but a docstring is no function. Exit 1 when something is
beyond a hard cap or a median beyond its limit.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULE_MEDIAN, MODULE_CAP = 150, 400
FUNCTION_MEDIAN, FUNCTION_CAP = 8, 60
#: The one place a newcomer must be able to read in a sitting.
TIGHTER_CAPS = {"pipeline/apply_worker.py": 250}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Measured:
    """A module or a function, its size in non-blank lines and its hard cap."""

    name: str
    lines: int
    cap: int


def non_blank(lines: list[str]) -> int:
    return sum(1 for line in lines if line.strip())


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def code_lines(function: Function, source: list[str]) -> int:
    """Non-blank lines from `def` to the end without the docstring; 0 for a signature with nothing else."""
    lines = non_blank(source[function.lineno - 1 : function.end_lineno])
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    if len(function.body) == 1:
        return 0
    return lines - non_blank(source[docstring.lineno - 1 : docstring.end_lineno])


def measure(root: Path) -> tuple[list[Measured], list[Measured]]:
    """Sizes of all modules with code in them, and of all their functions."""
    modules: list[Measured] = []
    found: list[Measured] = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        source = text.splitlines()
        tree = ast.parse(text)
        if len(tree.body) > 1 or path.name != "__init__.py":
            modules.append(Measured(name, non_blank(source), TIGHTER_CAPS.get(name, MODULE_CAP)))
        found += (
            Measured(f"{name}:{node.lineno} {node.name}", lines, FUNCTION_CAP)
            for node in functions(tree)
            if (lines := code_lines(node, source))
        )
    return modules, found


def report(kind: str, measured: list[Measured], median_limit: int) -> bool:
    """Print one line of figures and the offenders; true when all limits hold."""
    if not measured:
        print(f"{kind}: none")
        return True
    median = statistics.median(item.lines for item in measured)
    largest = max(measured, key=lambda item: item.lines)
    offenders = sorted((item for item in measured if item.lines > item.cap), key=lambda i: -i.lines)
    print(
        f"{kind}: {len(measured)}, median {median:g} (limit {median_limit}), "
        f"largest {largest.lines} (cap {largest.cap}) {largest.name}"
    )
    for item in offenders:
        print(f"  beyond the cap: {item.name}: {item.lines} > {item.cap}")
    if median > median_limit:
        print(f"  beyond the limit: the median of {kind} is {median:g} > {median_limit}")
    return not offenders and median <= median_limit


def main() -> int:
    root = Path(__file__).resolve().parent.parent / "etl"
    modules, found = measure(root)
    held = [report("modules", modules, MODULE_MEDIAN), report("functions", found, FUNCTION_MEDIAN)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
