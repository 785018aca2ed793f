"""``eks-inference new``: writes a stack file for a model from the first place that `plan` lists."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eks_inference_tools.commands.options import add_prices, own_prices
from eks_inference_tools.commands.wishes import (
    Named,
    accelerated,
    add_model,
    add_region,
    add_wishes,
    catalog_model,
    count_measured,
    extended,
    known_region,
    named,
    refuse,
    traffic_of,
    wish_of,
)
from stackgraph.commands.options import add_document

if TYPE_CHECKING:
    from eks_inference_tools.cost.price_book import PriceBook
    from eks_inference_tools.fitting.search import Found, Row
    from stackgraph.recorder.project import Project


HELP = "write a stack file for a model, from the first place that `plan` lists"
EXAMPLES = (
    "new mine --model Qwen/Qwen3-8B --region us-west-2",
    "new mine --model Qwen/Qwen3-8B --instance g6.xlarge --like inf2-llama3",
    "new mine --config ./llm/config.json --model ours/llm",
    "new mine --model Qwen/Qwen3-4B --hub",
)
_SHOWN = 5
"""Instance types that are offered to choose from."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Writes stacks/Pulumi.NAME.yaml: plain vLLM for one model on the first instance type that `plan` lists: the one with "
        "the cheapest tokens where the model fits, no rule warns and the engine stays supported. With --rate, writes as many "
        "replicas as the traffic takes. Says what it chose and why, what that costs and what quota it needs. Asks on a terminal "
        "for what you leave open. With --config, --model names the repository of the weights. Never overwrites a file, and "
        "writes none that `check` refuses."
    )
    parser.add_argument("name", metavar="NAME", help="the name of the stack")
    add_model(parser)
    parser.add_argument("--instance", metavar="TYPE", help="an EC2 instance type with Neuron devices or GPUs")
    parser.add_argument("--engine", metavar="PROFILE", help="an engine profile (default: the newest that is supported)")
    add_region(parser)
    add_wishes(parser)
    parser.add_argument("--like", metavar="STACK", help="take settings of the whole stack, core pool and region from this stack")
    parser.add_argument(
        "--program", metavar="DIR", type=Path, help="another Pulumi Python project (default: the one that contains this folder)"
    )
    add_prices(parser)
    add_document(parser, ("text", "json"), long="--write-to")


def run(options: argparse.Namespace) -> int:
    from eks_inference.faults import SpecError
    from eks_inference_tools.check.document import SCHEMA, verdict
    from eks_inference_tools.check.report import judge, problem
    from eks_inference_tools.cost.price_book import PriceBook
    from eks_inference_tools.fitting.document import document
    from eks_inference_tools.fitting.search import quantized_for_less, search
    from eks_inference_tools.fitting.stack_file import Order, stack_file
    from eks_inference_tools.fitting.text import summary
    from eks_inference_tools.notes import notes_of
    from eks_inference_tools.program import unwritten
    from stackgraph.presentation.output import drawing, json_text, write
    from stackgraph.presentation.terminal import drawn
    from stackgraph.problems import ProblemsFound
    from stackgraph.program import project_in

    asks = sys.stdin.isatty() and sys.stdout.isatty() and options.format == "text"
    project = project_in(options.program)
    file = _file(project, options.name)
    like = _like(options)
    extended(options.catalog)
    count_measured(options)
    if asks:
        _ask_for_model(options)
    if options.config is not None or options.hub:
        _repository(options.model or "")
    wanted = named(options)
    types = (accelerated(options.instance).name,) if options.instance else ()
    prices = own_prices(options)
    book = PriceBook((prices,))
    found = search(wish_of(options, wanted, types), book)
    row = _chosen(found, book, asks=asks and not types)
    kept = file.with_name(f"{options.name}.config.json")
    order = Order(
        options.name,
        row,
        _model(wanted, options.config, kept, project),
        like,
        tuple(_in_project(one, project, "--catalog") for one in options.catalog),
        traffic_of(options),
    )
    try:
        text = stack_file(order)
    except SpecError as error:
        refuse(error.faults[0].message, "--region", order.region, error.faults[0].allowed, error.faults[0].hint)
    with _there(kept, wanted.of_hub):
        stack = unwritten(project, options.name, text)
        report = judge(stack)
        if report.stopped:
            raise ProblemsFound(
                [*report.refusals, *(problem(stack, one, report.graph) for one in report.verdict.findings if one.stops)]
            )
        _write(file, text.encode())
    saving = None if options.quantization else quantized_for_less(found, row, book)
    if options.format == "json":
        place = document(replace(found, rows=(row,)))["fits"][0]
        written = {"schema": SCHEMA, "file": stack.document.shown, "place": place, "instead": list(found.instead_of(row))}
        said = json_text({**written, **verdict(report, notes_of(report.graph, prices) if report.graph else ())})
    else:
        said = drawn(summary(report, found, order, prices, saving), **drawing(options.output))
    write(said, options.output)
    return 0


def _file(project: "Project", name: str) -> Path:
    """Returns the path of a stack file that is not there yet."""
    from pydantic import TypeAdapter, ValidationError

    from eks_inference.specs.base import ResourceName

    try:
        TypeAdapter(ResourceName).validate_python(name)
    except ValidationError:
        refuse("not a valid stack name", "NAME", name, "at most 40 lower-case letters, digits and hyphens, a letter first")
    for suffix in ("yaml", "yml"):
        path = project.stack_dir / f"Pulumi.{name}.{suffix}"
        if path.exists() or path.is_symlink():
            refuse("this stack exists, and `new` overwrites no file", "NAME", name, hint="choose another name, or edit the file")
    if not project.stack_dir.is_dir():
        refuse("the project has no folder for stack files", "--program", str(project.stack_dir), hint="make this folder")
    return project.stack_dir / f"Pulumi.{name}.yaml"


def _like(options: argparse.Namespace) -> Mapping[str, Any] | None:
    """The stack object of ``--like``, whose region is then the default."""
    from eks_inference_tools.program import REGION_KEY, STACK_KEY, program

    if options.like is None:
        return None
    stack = program(options.like, options.program)
    if stack.spec() is None:
        refuse("the stack has no stack object", "--like", options.like, "a stack of InferencePlatform.from_config")
    options.region = options.region or stack.config.values.get(REGION_KEY)
    return stack.document.data["config"][STACK_KEY]


def _ask_for_model(options: argparse.Namespace) -> None:
    if options.model is None:
        wanted = (
            ("model, a name or repository", _model_named)
            if options.config is None and not options.hub
            else ("repository of the weights", _repository)
        )
        options.model = asked(*wanted)
    if options.region is None:
        options.region = asked("region [us-east-1]", lambda given: known_region(given or None))


def _model_named(given: str) -> str:
    catalog_model(given or None)
    return given


def _repository(given: str) -> str:
    """The repository of a model that only its config.json describes: that says nothing of where its weights are."""
    if "/" not in given:
        message = "name the repository that has the weights: the pods download them from there"
        hint = "weights in S3 or on a volume: write model.kind into the stack file (docs/stack-file.md)"
        refuse(message, "--model", given, "owner/name, as on the Hugging Face Hub", hint)
    return given


def _chosen(found: "Found", book: "PriceBook", *, asks: bool) -> "Row":
    """The first place of plain vLLM. A user may choose another instance type."""
    from eks_inference_tools.fitting.text import price_of_tokens

    offered = _offered(found)
    if not offered:
        _refuse_all(found, book)
    if not asks or len(offered) == 1:
        return offered[0]
    for number, row in enumerate(offered[:_SHOWN], start=1):
        print(f"{number}  {row.trial.instance.name:<18} {_usd(row)}, {price_of_tokens(row)}")
    return asked("which [1]", lambda given: _chosen_of(offered, given or "1"))


def _chosen_of(offered: "Sequence[Row]", given: str) -> "Row":
    """The row of a number that was shown, or of any instance type."""
    shown = {str(number): row for number, row in enumerate(offered[:_SHOWN], start=1)}
    named = shown | {row.trial.instance.name: row for row in offered}
    if given not in named:
        hint = (
            f"others where it fits: {', '.join(row.trial.instance.name for row in offered[_SHOWN:])}" if offered[_SHOWN:] else ""
        )
        refuse("none of the instance types", "which", given, f"1 to {len(shown)}, or an instance type", hint)
    return named[given]


def _offered(found: "Found") -> "list[Row]":
    """Returns the first row of plain vLLM for each instance type."""
    from eks_inference_tools.fitting.trials import VLLM

    return list(replace(found, rows=tuple(row for row in found.rows if row.trial.kind is VLLM)).first_of_types)


def _usd(row: "Row") -> str:
    return "no price" if row.usd_per_hour is None else f"${row.usd_per_hour:.2f} an hour"


def _refuse_all(found: "Found", book: "PriceBook") -> NoReturn:
    from eks_inference.catalog.zones import zone_ids
    from stackgraph.problems import Problem, ProblemsFound

    wish, nearest = found.wish, found.nearest
    why = (
        f"{nearest.instance.name}: {nearest.rule + ': ' if nearest.rule else ''}{nearest.reason}"
        if nearest
        else "nothing was tried"
    )
    asked = f"{wish.concurrency} sequences of {wish.context} tokens at once, {', '.join(wish.quantized)}"
    hint = "; ".join(("`eks-inference plan --model …` says why of each instance type", *_otherwise(found, book)))
    offering = _regions_with(nearest.instance.name) if nearest and not zone_ids(wish.region, nearest.instance.name) else []
    if offering:
        hint += f"; --region: {', '.join(offering)}"
    raise ProblemsFound([Problem(f"{wish.model.name} fits none of the places asked for: {why}", given=asked, hint=hint)])


def _otherwise(found: "Found", book: "PriceBook") -> Iterator[str]:
    """Yields where the model fits by one option more or less."""
    from eks_inference_tools.fitting.search import quantized_for_less, search

    wish = found.wish
    if wish.under is not None and (offered := _offered(search(replace(wish, under=None), book))):
        yield f"without --under it fits on {offered[0].trial.instance.name}, {_usd(offered[0])}"
    if saving := quantized_for_less(found, None, book):
        yield f"with --quantization {saving.trial.quantization} it fits on {saving.trial.instance.name}, {_usd(saving)}"


def _regions_with(name: str) -> list[str]:
    from eks_inference.catalog.zones import regions, zone_ids

    return [region for region in regions() if zone_ids(region, name)]


def _model(wanted: Named, config: str | None, kept: Path, project: "Project") -> Mapping[str, Any]:
    """The key ``model`` of the server: a config.json stays the file that it is."""
    file = str(kept) if wanted.of_hub else config
    if file is None:
        return wanted.source
    named_so = {key: value for key, value in wanted.source.items() if key != "shape"}
    return {**named_so, "config": _in_project(file, project, "--config")}


def _in_project(path: str, project: "Project", option: str) -> str:
    """The path of a file as a stack file names it."""
    found = Path(path).resolve()
    if not found.is_relative_to(project.root):
        refuse("a stack file names only files of its project", option, path, f"a file below {project.root}", "copy it there")
    return f"./{found.relative_to(project.root)}"


@contextmanager
def _there(file: Path, content: bytes | None) -> Iterator[None]:
    """Keeps a file beside a stack, unless the stack cannot be."""
    if content is None:
        yield
        return
    _write(file, content)
    try:
        yield
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _write(file: Path, content: bytes) -> None:
    """Writes a new file as a whole, or not at all."""
    import os
    import tempfile

    from stackgraph.problems import Problem, ProblemsFound

    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.") as new:
            new.write(content)
            new.flush()
            os.chmod(new.name, 0o644)
            # Unlike a rename, a link fails where somebody else has made the file meanwhile.
            os.link(new.name, file)
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot write here: {error.strerror}", file=str(file))]) from error


Answer = TypeVar("Answer")


def asked(question: str, read: Callable[[str], Answer]) -> Answer:
    """Returns what ``read`` makes of an answer. It raises ``ProblemsFound`` for one that cannot be used.

    The end of the input (Ctrl-D) counts as an empty answer, and is not asked again.
    """
    from stackgraph.presentation.output import tell
    from stackgraph.problems import ProblemsFound

    while True:
        try:
            given = input(f"{question}: ").strip()
        except EOFError:
            print(file=sys.stderr)
            return read("")
        try:
            return read(given)
        except ProblemsFound as error:
            for problem in error.problems:
                tell(problem.render())
