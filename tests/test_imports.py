"""Who may import whom: the arrows of docs/architecture.md, and what a command must not load."""

import ast
import subprocess
import sys
from pathlib import Path

import eks_inference

PACKAGE = Path(eks_inference.__file__).parent


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}


def imports(path: Path) -> set[str]:
    """Modules a file imports when it runs; what stands under TYPE_CHECKING is for type checkers only."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        waiting += ast.iter_child_nodes(node)
    return found


def own(path: Path) -> set[str]:
    return {name.removeprefix("eks_inference.") for name in imports(path) if name.startswith("eks_inference.")}


def test_the_preview_imports_nothing_of_the_library_outside_itself():
    for name, path in modules().items():
        if name.startswith("preview"):
            assert all(module.startswith("preview") for module in own(path)), name


def test_specs_plans_and_the_catalog_never_import_pulumi():
    pure = ("spec", "plan", "rules", "facts", "interfaces", "memory", "feasibility", "judgements")
    for name, path in modules().items():
        if (
            name.startswith(("catalog.", "preflight."))
            or (name.endswith(pure) and not name.startswith("preview."))
            or name in ("stack", "quantity", "faults")
        ):
            assert not any(module.split(".")[0].startswith("pulumi") for module in imports(path)), name


def test_components_do_not_import_what_is_above_them():
    above = {"platform", "stack", "cli", "program", "stack_outputs", "diff_command", "diff_recorder"}
    above |= {name for name in modules() if name.startswith(("preflight", "simulate"))}
    for name, path in modules().items():
        if name not in (*above, "__init__", "__main__"):
            assert not own(path) & above, name


def test_the_rules_are_above_components_and_below_the_platform():
    for name, path in modules().items():
        if name.startswith("preflight"):
            assert not own(path) & {"platform", "cli"}, name
            assert not any(module.endswith("component") for module in own(path)), name


def test_specs_load_without_pulumi_at_all():
    program = (
        "import sys, eks_inference.stack.spec; sys.exit([m for m in sys.modules if m.split('.')[0].startswith('pulumi')] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_package_loads_nothing_until_a_name_is_used():
    program = "import sys, eks_inference; sys.exit([m for m in sys.modules if m.startswith('eks_inference.')] or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_type_checkers_see_the_names_that_can_be_imported():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(eks_inference.__all__)


def test_every_public_name_can_be_imported():
    for name in eks_inference.__all__:
        assert getattr(eks_inference, name).__name__ == name
