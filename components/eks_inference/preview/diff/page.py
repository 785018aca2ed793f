"""The report as one page."""

from eks_inference.preview.diff.report import Report


def render_page(report: Report) -> str:
    """The page of ``diff --format html``."""
    raise NotImplementedError
