"""Exit code 0 when every server answers its health check: a probe for a container with several.

healthy.py URL...
"""

import sys
import urllib.request

_SECONDS = 5


def main(*urls: str) -> int:
    for url in urls:
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS):
                pass
        except OSError as error:
            print(f"{url}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
