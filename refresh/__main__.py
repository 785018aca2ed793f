"""``python -m refresh TABLE [SOURCE ...]`` writes a table anew and says what changed. Without a name, lists the tables."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from refresh import ROOT, changes

# The graphs of the shipped and of the covering stacks, of which two tables are made.
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

_MOST = 40
"""Changes that are printed; git has them all."""


def main(name: str = "", *sources: str) -> int:
    tables = {path.stem: path for path in sorted(Path(__file__).parent.glob("[!_]*.py"))}
    if name not in tables:
        if name:
            print(f"there is no table '{name}'\n", file=sys.stderr)
        for table in tables:
            made = _module(table)
            print(f"{table:<18} {made.FILE.relative_to(ROOT)}\n{'':<18} {(made.__doc__ or '').partition(chr(10))[0]}")
        return 2 if name else 0
    made = _module(name)
    wanted = " ".join(inspect.signature(made.table).parameters).upper()
    if len(sources) != len(wanted.split()):
        print(f"{name} is made from {wanted or 'no further source'}; its first lines say what these are", file=sys.stderr)
        return 2
    text = made.table(*sources)
    file = made.file_of(*sources) if made.FILE.is_dir() else made.FILE  # a folder with a file for each release
    said = changes(file, text)
    file.write_text(text, encoding="utf-8")
    print(
        *said[:_MOST],
        *["…"] * (len(said) > _MOST),
        f"{file.relative_to(ROOT)}: {len(said) or 'no'} change{'s' * (len(said) != 1)}",
        sep="\n",
    )
    return 0


def _module(name: str) -> ModuleType:
    return import_module(f"refresh.{name}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
