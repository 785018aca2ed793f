"""The paths that a text in Python registers with FastAPI or Starlette."""

import ast
from collections.abc import Iterator

_REGISTERING = {"Mount", "add_api_route", "api_route", "delete", "get", "head", "mount", "patch", "post", "put", "websocket"}


def paths_in(text: str) -> Iterator[str]:
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            path = call.args[0].value
            if called in _REGISTERING and isinstance(path, str) and path.startswith("/"):
                yield path
