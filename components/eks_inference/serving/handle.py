"""What clients of a model server need to know of it, whichever engine it runs."""

from collections.abc import Sequence
from typing import Protocol

import pulumi


class ModelServer(Protocol):
    """A model server with an OpenAI API, e.g. ``RayServeVllm``. Names are plain strings, known at preview."""

    @property
    def namespace(self) -> str: ...
    @property
    def endpoint(self) -> str:
        """Base URL inside the cluster, with ``/v1``."""
        ...

    @property
    def model_id(self) -> str:
        """The name requests give the model."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """What must exist before a client. It says nothing about the model being loaded: that takes ``startup_seconds``."""
        ...

    @property
    def startup_seconds(self) -> int:
        """Upper bound of a cold start: node, image, download, compilation, load. For waiting, not an expectation."""
        ...
