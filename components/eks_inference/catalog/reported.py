"""Failures that somebody reports: loads ``reported.toml``."""

from dataclasses import dataclass
from functools import cache

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.catalog.tables import Row, load


@dataclass(frozen=True)
class Report(Row):
    """A failure of some engine profiles. ``source`` is the report itself."""

    engines: tuple[str, ...]
    says: str
    """What fails, and for what exactly somebody saw it, without a full stop."""
    who: str = "users"
    """Who says so."""
    families: tuple[str, ...] = ()
    """Instance families."""
    types: tuple[str, ...] = ()
    """Instance types, where the report is not about whole families."""
    models: tuple[str, ...] = ()
    """Rows of models.toml, or repositories that have none."""
    architectures: tuple[str, ...] = ()
    """Model architectures (``Model.architecture``), where the report is about all models of them."""

    def about(self, engine: EngineProfile, instance: InstanceType, model_id: str, model: Model | None) -> bool:
        """Whether the report is about such a server. ``model`` is None where nobody knows its shape."""
        names = {model_id, model.name} if model else {model_id}
        named = bool(names.intersection(self.models)) or (model is not None and model.architecture in self.architectures)
        return named and engine.name in self.engines and (instance.family in self.families or instance.name in self.types)


@cache
def reports() -> tuple[Report, ...]:
    """All known reports."""
    return tuple(load(Report, "reported.toml").values())
