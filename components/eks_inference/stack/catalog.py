"""Makes the catalog files of a stack count while it is read."""

from collections.abc import Sequence

from eks_inference.catalog.own import LARGEST, count
from eks_inference.specs.project_files import read_file


def use_catalog(files: Sequence[str]) -> None:
    """Makes the rows of these files count, in place of those of the stack before. Raises ``SpecError`` with every fault."""
    count({file: read_file(file, LARGEST) for file in files})
