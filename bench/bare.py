"""The bare program of a graph: the same resources, made by nothing but the SDKs' own constructors.

What a program costs beyond its SDKs is its time over that of its bare program, on the same monitor.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pulumi import _types
from pulumi.runtime import rpc

from stackgraph.graph.document import PROVIDER_PREFIX, STACK_TYPE, Graph, Resource

_CUSTOM_RESOURCE = ("pulumi_kubernetes.apiextensions", "CustomResource")
_OPTIONS = ("deleteBeforeReplace", "ignoreChanges", "protect", "replaceOnChanges", "retainOnDelete")


def owner(type_: str) -> tuple[str, str] | None:
    """Module and class that make a resource of this type; None for components of the program itself."""
    package, _, rest = type_.partition(":")
    if type_.startswith(PROVIDER_PREFIX):
        return f"pulumi_{rest.rpartition(':')[2]}", "Provider"
    if not any(key == package for key in _packages()):
        return None
    table: Mapping[str, Any] = getattr(rpc.get_resource_module(package, rest.split(":")[0], ""), "mod_info", {})
    if type_ in table.get("classes", {}):
        return table["fqn"], table["classes"][type_]
    return _CUSTOM_RESOURCE if package == "kubernetes" else None


def _packages() -> set[str]:
    return {key.split(":")[0] for key in rpc._RESOURCE_MODULES}


def bare_program(graph: Graph) -> Callable[[], None]:
    """The program, compiled; call it under a recorder."""
    program = compile("\n".join(bare_source(graph)), "<bare>", "exec")
    return lambda: exec(program, {})


def bare_source(graph: Graph) -> Iterator[str]:
    """The program's text, a line for each resource."""
    made = [resource for resource in _in_order(graph) if resource.type != STACK_TYPE and not resource.is_default_provider]
    owners = {resource.urn: owner(resource.type) for resource in made}
    yield "import pulumi"
    for module in sorted({found[0] for found in owners.values() if found}):
        yield f"import {module}"
    variables = {resource.urn: f"r{number}" for number, resource in enumerate(made)}
    references = References({resource.name: (variables[resource.urn], resource) for resource in made})
    for resource in made:
        options = f"opts=pulumi.ResourceOptions({', '.join(_options(resource, variables, references))})"
        variable = variables[resource.urn]
        found = owners[resource.urn]
        if found is None:
            inputs = references.expression(resource.inputs)
            yield f"{variable} = pulumi.ComponentResource({resource.type!r}, {resource.name!r}, {inputs}, {options})"
            yield f"{variable}.register_outputs({{}})"
        else:
            arguments = (
                f"{name}={_known(expression, resource.property_dependencies.get(key, ()), variables, references, value)}"
                for key, name, value in _arguments(resource, found)
                for expression in (references.expression(value),)
            )
            yield f"{variable} = {'.'.join(found)}({', '.join([repr(resource.name), *arguments, options])})"


def _in_order(graph: Graph) -> list[Resource]:
    """Each resource after all it needs."""
    done: dict[str, Resource] = {}

    def visit(resource: Resource) -> None:
        if resource.urn in done:
            return
        others = (resource.options.get("deletedWith"), *resource.dependencies, *_property_urns(resource))
        for urn in (resource.parent, resource.provider, *others):
            if urn:
                visit(graph.by_urn[urn])
        done[resource.urn] = resource

    for resource in graph.resources:
        visit(resource)
    return list(done.values())


def _property_urns(resource: Resource) -> set[str]:
    return {urn for urns in resource.property_dependencies.values() for urn in urns}


def _options(resource: Resource, variables: Mapping[str, str], references: "References") -> Iterator[str]:
    if resource.parent in variables:
        yield f"parent={variables[resource.parent]}"
    if resource.provider in variables:
        yield f"provider={variables[resource.provider]}"
    extra = [variables[urn] for urn in resource.dependencies if urn in variables and urn not in references.urns(resource.inputs)]
    if extra:
        yield f"depends_on=[{', '.join(extra)}]"
    for name in _OPTIONS:
        if name in resource.options:
            yield f"{_snake(name)}={resource.options[name]!r}"
    if "deletedWith" in resource.options:
        yield f"deleted_with={variables[resource.options['deletedWith']]}"
    if "replacementTrigger" in resource.options:
        yield f"replacement_trigger={references.expression(resource.options['replacementTrigger'])}"
    if "customTimeouts" in resource.options:
        yield f"custom_timeouts=pulumi.CustomTimeouts(**{resource.options['customTimeouts']!r})"


def _arguments(resource: Resource, found: tuple[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Name in the graph, name in Python, and value of each input."""
    module, cls = found
    if resource.is_provider:
        for name, value in resource.inputs.items():
            if name != "version":
                yield name, _snake(name), json.loads(value) if value in ("true", "false") else value
        return
    names: dict[str, str] = {}
    for suffix in ("Args", "InitArgs"):
        args = getattr(importlib.import_module(module), cls + suffix, None)
        if args is not None:
            names = {wire: python for python, wire in _types.input_type_py_to_pulumi_names(args).items()}
    for name, value in resource.inputs.items():
        yield name, names.get(name, _snake(name)), value


def _known(expression: str, urns: Iterable[str], variables: Mapping[str, str], references: "References", value: Any) -> str:
    """The expression of an input; where it came from outputs that are known, an output of their resources with its value."""
    hidden = [variables[urn] for urn in urns if urn in variables and urn not in references.urns(value)]
    if not hidden:
        return expression
    return f"pulumi.Output.all({', '.join(f'{one}.urn' for one in hidden)}).apply(lambda _: {expression})"


class References:
    """Values of a graph as Python expressions; tokens such as ``<net-vpc.id>`` become outputs of the resources they name."""

    def __init__(self, by_name: Mapping[str, tuple[str, Resource]]) -> None:
        self._by_name = by_name
        names = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
        self._token = re.compile(rf"<({names})\.([\w.]+)>")

    def urns(self, value: Any) -> set[str]:
        """URNs of the resources whose outputs a value has in it."""
        return {self._by_name[name][1].urn for name, _ in self._token.findall(json.dumps(value))}

    def expression(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key!r}: {self.expression(item)}' for key, item in value.items())}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(self.expression, value))}]"
        if not isinstance(value, str) or not self._token.search(value):
            return repr(value)
        parts = []
        end = 0
        for match in self._token.finditer(value):
            parts += [repr(value[end : match.start()]), self._output(match[1], match[2])]
            end = match.end()
        parts = [part for part in (*parts, repr(value[end:])) if part != "''"]
        return parts[0] if len(parts) == 1 else f"pulumi.Output.concat({', '.join(parts)})"

    def _output(self, name: str, path: str) -> str:
        return ".".join((self._by_name[name][0], *map(_snake, path.split("."))))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
