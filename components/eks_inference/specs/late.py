"""A text of a spec that may be an Output. It decides no shape: a component only passes it on. Loads no pulumi."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


def is_output(given: Any) -> bool:
    """Whether a value is an Output. Who has one has imported pulumi."""
    return type(given).__module__ == "pulumi.output"


if TYPE_CHECKING:
    import pulumi

    Late = str | pulumi.Output[str]
else:

    class _OrOutput:
        def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
            return core_schema.no_info_wrap_validator_function(
                lambda given, validate: given if is_output(given) else validate(given),
                handler(source),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value),
            )

    Late = Annotated[str, _OrOutput()]
"""A stack file holds plain text here, and its JSON schema says so; a program may give an Output of another resource."""
