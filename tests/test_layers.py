"""Who may import whom: the three packages, the domains of the library, the folders; and what an import must not load."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

import eks_inference

ROOT = Path(__file__).parents[1]
COMPONENTS = ROOT / "components"

# What each package may import of the others.
PACKAGES: Mapping[str, frozenset[str]] = {
    "stackgraph": frozenset(),
    "eks_inference": frozenset(),
    "eks_inference_tools": frozenset({"eks_inference", "stackgraph"}),
}

# The domains of eks_inference, from the ground up. Each may import those before it. docs/architecture.md has the same list.
DOMAINS = (
    "faults",
    "catalog",
    "specs",
    "rules",
    "place",
    "component",
    "aws",
    "kubernetes",
    "network",
    "cluster",
    "pools",
    "storage",
    "images",
    "accelerators",
    "observability",
    "scaling",
    "serving",
    "speed",
    "loadtest",
    "clients",
    "endpoints",
    "gateway",
    "stack",
    "assembly",
    "platform",
    "plugin",
    "__main__",
)

# Stems of files that recur, each with one meaning, as docs/architecture.md says.
FILES = {"spec", "plan", "rules", "facts", "component", "handle", "kind", "existing"}
FILES |= {"text", "document", "page", "report", "registry"}
# Stems of modules about one subject, each from the side of its room. So are commands, which have the names of commands.
SUBJECTS = {
    "autoscalers",
    "cli",
    "dangers",
    "device_plugins",
    "domain",
    "features",
    "karpenter",
    "nixl",
    "program",
    "recorder",
    "titles",
}

# Modules that decide and compute: they never import pulumi. Others of the library may.
PURE = re.compile(
    r"eks_inference\.(catalog\b.*|faults|rules|specs\.(base|settings|validation)|kubernetes\.merge|stack\.(?!outputs).*"
    r"|.*\.(\w+_)?(spec|plan|rules|facts|memory|feasibility|flags))"
    r"|eks_inference\..*\.rules\..*"
)

Edge = tuple[str, str]
"""The importing module and what it imports."""


@cache
def imports(text: str) -> Set[str]:
    """Every module, or name in a module, that a module's text imports: also inside functions and for type checkers only.

    A text that reads like a module's name counts too: ``import_module`` takes it.
    """
    return frozenset(_imports(text))


def _imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name their module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (name := _NAME.fullmatch(node.value)):
            yield name[1]


_NAME = re.compile(r"(\w+(?:\.\w+)+)(?::\w+)?")
"""``package.module`` or ``package.module:attribute``."""


@cache
def texts() -> Mapping[str, str]:
    """The modules of the three packages. Files under ``assets`` run elsewhere."""
    paths = [path for package in PACKAGES for path in (COMPONENTS / package).rglob("*.py") if "assets" not in path.parts]
    return {
        ".".join(path.relative_to(COMPONENTS).with_suffix("").parts).removesuffix(".__init__"): path.read_text("utf-8")
        for path in paths
    }


@pytest.fixture(scope="module")
def ours() -> Set[Edge]:
    return edges(texts())


def edges(modules: Mapping[str, str]) -> Set[Edge]:
    """Imports between these modules, as (importing module, imported module)."""
    found = {(module, name) for module, text in modules.items() for name in imports(text)}
    return {
        (module, home)
        for module, name in found
        for home in ([name] if name in modules else [name.rpartition(".")[0]])
        if home in modules and home != module
    }


def against_the_packages(found: Set[Edge]) -> list[str]:
    ends = ((one, other, one.partition(".")[0], other.partition(".")[0]) for one, other in found)
    return sorted(f"{one} -> {other}" for one, other, here, there in ends if here != there and there not in PACKAGES[here])


def against_the_domains(found: Set[Edge]) -> list[str]:
    def height(module: str) -> int:
        domain = module.split(".")[1]
        assert domain in DOMAINS, f"{domain} is missing in the order of the domains"
        return DOMAINS.index(domain)

    inside = ((one, other) for one, other in found if {one.split(".")[0], other.split(".")[0]} == {"eks_inference"})
    return sorted(f"{one} -> {other}" for one, other in inside if other == "eks_inference" or height(one) < height(other))


def mutual(found: Set[Edge]) -> list[str]:
    """Folders, and modules beside them, that import each other. Two modules count where their packages part."""
    pairs: dict[Edge, Edge] = {}
    for one, other in sorted(found):
        here, there = one.split("."), other.split(".")
        apart = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        if apart is not None:
            pairs.setdefault((".".join(here[: apart + 1]), ".".join(there[: apart + 1])), (one, other))
    return sorted(
        f"{' -> '.join(edge)} and {' -> '.join(pairs[there, here])}"
        for (here, there), edge in pairs.items()
        if here < there and (there, here) in pairs
    )


def test_no_package_imports_what_it_must_not_know(ours):
    assert not (found := against_the_packages(ours)), "\n".join(found)


def test_no_domain_of_the_library_imports_one_above_it(ours):
    assert not (found := against_the_domains(ours)), "\n".join(found)


def test_no_two_folders_import_each_other(ours):
    assert not (found := mutual(ours)), "\n".join(found)


def of_the_rehearsal(found: Set[Edge]) -> list[str]:
    """Imports of the rehearsal from outside it. Its own commands may: everything else is read and released without it."""
    room, commands = (
        "eks_inference_tools.simulate",
        ("eks_inference_tools.commands.simulate", "eks_inference_tools.commands.rehearse"),
    )
    return sorted(f"{one} -> {other}" for one, other in found if other.startswith(room) and not one.startswith((room, *commands)))


def test_only_its_own_commands_import_the_rehearsal(ours):
    assert not (found := of_the_rehearsal(ours)), "\n".join(found)


MADE_OF = {("prefill_decode", "vllm")}
"""Kinds whose servers are servers of another kind."""


def between_kinds(found: Set[Edge]) -> list[str]:
    """Imports of a kind of server from outside its folder: the registry makes them, and kinds that are made of another."""
    kinds = {path.parent.name for path in (COMPONENTS / "eks_inference/serving").glob("*/kind.py")}
    folders = tuple(f"eks_inference.serving.{kind}." for kind in kinds)
    assert len(folders) >= 4
    inside = ((one, other) for one, other in found if one.startswith("eks_inference.serving.") and other.startswith(folders))
    apart = ((one, other) for one, other in inside if one.split(".")[2] != other.split(".")[2])
    apart = ((one, other) for one, other in apart if (one.split(".")[2], other.split(".")[2]) not in MADE_OF)
    return sorted(f"{one} -> {other}" for one, other in apart if one != "eks_inference.serving.kinds")


def test_no_kind_of_server_is_imported_outside_its_folder(ours):
    assert not (found := between_kinds(ours)), "\n".join(found)


def test_modules_are_imported_by_names_that_can_be_read():
    """A name that is made up at run time would hide an import. These import what a list in the same file, or a user, names."""
    named = {
        "eks_inference.rules",
        "eks_inference.stack.registry",
        "eks_inference_tools.cli",
        "eks_inference_tools.documents",
        "stackgraph.__main__",
        "stackgraph.recorder.lazy_sdk",
    }
    hidden = {
        module
        for module, text in texts().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__", "exec")
        if not (node.args and isinstance(node.args[0], ast.Constant) and _NAME.fullmatch(str(node.args[0].value)))
    }
    assert hidden == named


def test_modules_of_one_stem_mean_the_same():
    modules = [path for path in COMPONENTS.rglob("*.py") if not {"commands", "assets"} & set(path.parts)]
    stems = Counter(path.stem for path in modules if not path.stem.startswith("__"))
    assert {stem for stem, number in stems.items() if number > 1} == FILES | SUBJECTS


def test_the_order_of_the_domains_is_the_documented_one():
    listed = re.search(r"<!-- domains -->\n(.+?)<!-- /domains -->", (ROOT / "docs/architecture.md").read_text("utf-8"), re.DOTALL)
    assert listed
    assert tuple(re.findall(r"^\d+\. `(\w+)`", listed[1], re.MULTILINE)) == DOMAINS
    present = {module.split(".")[1] for module in texts() if module.startswith("eks_inference.")}
    assert present == set(DOMAINS)


FORMS = {
    "in the module": "{line}",
    "in a function": "def late():\n    {line}",
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {line}",
    "by name": "from importlib import import_module\nimport_module({name!r})",
    "by name and attribute": "handler = '{name}:anything'",
}
PLANTED = [
    (against_the_packages, "stackgraph.diff.graphs", "eks_inference.place.placement"),
    (against_the_packages, "stackgraph.diff.graphs", "eks_inference_tools.cli"),
    (against_the_packages, "eks_inference.faults", "stackgraph.problems"),
    (against_the_packages, "eks_inference.platform", "eks_inference_tools.cli"),
    (against_the_domains, "eks_inference.network.rules", "eks_inference.pools.spec"),
    (against_the_domains, "eks_inference.catalog.models", "eks_inference.place.placement"),
    (against_the_domains, "eks_inference.serving.pod_parts", "eks_inference.clients.chat"),
    (between_kinds, "eks_inference.serving.vllm.plan", "eks_inference.serving.triton.plan"),
    (between_kinds, "eks_inference.serving.pod_parts", "eks_inference.serving.ray_serve.spec"),
    (of_the_rehearsal, "eks_inference_tools.timeline.update_steps", "eks_inference_tools.simulate.world.api_objects"),
    (mutual, "eks_inference.cluster.spec", "eks_inference.pools.spec"),
    (mutual, "eks_inference_tools.reading.pods", "eks_inference_tools.check.pod_rules"),
    (mutual, "eks_inference.accelerators.device_plugins", "eks_inference.accelerators.neuron.plan"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("check", "module", "name"), PLANTED, ids=[f"{one} imports {other}" for _, one, other in PLANTED])
def test_a_planted_import_is_found_wherever_it_stands(check, module, name, form, ours):
    folder, _, short = name.rpartition(".")
    assert module in texts()
    for line in (f"import {name}", f"from {folder} import {short}", f"from {name} import anything"):
        (new,) = edges(dict.fromkeys(texts(), "") | {module: FORMS[form].format(line=line, name=name)})
        assert new == (module, name)
        assert set(check(ours | {new})) > set(check(ours))


def test_the_library_does_not_import_its_own_list_of_names(ours):
    assert against_the_domains({("eks_inference.platform", "eks_inference")}) != []


def test_specs_plans_and_rules_never_import_pulumi():
    pure = {name: text for name, text in texts().items() if PURE.fullmatch(name)}
    assert len(pure) > 70
    for name, text in pure.items():
        assert not [one for one in imports(text) if one.split(".")[0].startswith("pulumi")], name


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "unwanted"),
    [("import eks_inference.stack.spec", "pulumi"), ("import eks_inference", "eks_inference.")],
    ids=["specs load without pulumi", "the package loads nothing until a name is used"],
)
def test_what_an_import_does_not_load(program, unwanted):
    program = f"import sys; {program}; sys.exit([m for m in sys.modules if m.startswith({unwanted!r})] or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_imported():
    names = dir(eks_inference)
    assert "InferencePlatform" in names
    for name in names:
        assert getattr(eks_inference, name).__name__ == name


@pytest.mark.thorough
def test_importing_the_library_loads_no_service_of_an_sdk() -> None:
    """An SDK loads ``pulumi_aws.ec2`` when a program first uses the name. An annotation that is evaluated would, at import."""
    program = (
        "import sys, eks_inference\n"
        "for name in eks_inference.__all__: getattr(eks_inference, name)\n"
        "print(*(one for one in sys.modules if one.startswith(('pulumi_aws.', 'pulumi_kubernetes.')) and one.count('.') > 1))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
