"""The day that a report is about."""

import os
import time
from datetime import UTC, date, datetime


def today() -> date:
    """Returns the date in UTC, or that of ``SOURCE_DATE_EPOCH`` (reproducible-builds.org), for reports that do not change."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(given) if given.isdecimal() and len(given) <= 11 else time.time()
    return datetime.fromtimestamp(seconds, UTC).date()
