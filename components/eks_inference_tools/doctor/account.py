"""Asks AWS's API with boto3, an optional extra of the package. Bounded in time, tries and pages."""

import os
import time
from typing import TYPE_CHECKING, Any

from eks_inference_tools import COMMAND
from eks_inference_tools.doctor.questions import Answer, Call, Unanswered
from stackgraph.graph.values import text
from stackgraph.problems import Problem, ProblemsFound

if TYPE_CHECKING:
    import boto3

CONNECT_SECONDS, READ_SECONDS, TRIES = 5, 20, 4
"""Limits of one request. botocore waits between tries, longer when AWS throttles (AWS SDKs reference guide, "standard")."""

MOST_SECONDS = 180.0
"""After this long nothing more is asked."""

MOST_PAGES = 100
"""Pages of one answer."""

_DENIED = ("accessdenied", "unauthorized", "notauthorized", "authorizationerror")
_DENIED_CODES = frozenset(("403", "Forbidden"))
_ENDED = frozenset(
    (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    )
)
"""Codes of errors about credentials (common errors of the services' API references)."""

_LOGIN = "log in (aws sso login, aws configure), name a profile (aws:profile of the stack, AWS_PROFILE) or set AWS_ACCESS_KEY_ID"


class Account:
    """An account, by the credentials of a profile or of the environment."""

    def __init__(self, session: "boto3.Session", *, profile: str = "") -> None:
        self._session = session
        self._clients: dict[tuple[str, str], Any] = {}
        self._ended = ""
        self._until = time.monotonic() + MOST_SECONDS
        self.profile = profile

    @property
    def own_region(self) -> str:
        """The region of the environment or of the profile, which `aws` commands use; empty without one."""
        given = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return text(given or self._session.region_name)

    @property
    def ended(self) -> str:
        """Why the credentials stopped being accepted; empty while they are."""
        return self._ended

    def prepare(self, calls: "set[Call]") -> None:
        """Makes the clients for calls. Not every thread may do that (boto3, "Multithreading")."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        settings = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
        )
        for service, region in sorted({(call.service, call.region) for call in calls} - self._clients.keys()):
            try:
                client = self._session.client(service, region_name=region, config=settings)  # type: ignore[call-overload]
            except (BotoCoreError, ValueError) as error:
                # An endpoint of the environment that is no URL, a service that an old botocore lacks.
                client = Unanswered(f"{service} in {region} cannot be asked: {text(str(error))}")
            self._clients[service, region] = client

    def answer(self, asked: Call) -> Answer:
        """Asks one question. Raises nothing that AWS, the network or the credentials cause."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._ended:
            return Unanswered(f"not asked: {self._ended}")
        if time.monotonic() > self._until:
            return Unanswered(f"not asked: the account had not answered everything after {MOST_SECONDS:.0f} s")
        try:
            return self._asked(asked)
        except ClientError as error:
            return self._refused(asked, error)
        except BotoCoreError as error:
            if isinstance(error, _credential_errors()):
                self._ended = f"the credentials cannot be used: {text(str(error))}"
                return Unanswered(self._ended)
            return Unanswered(f"{asked.shown} in {asked.region}: {text(str(error))}")

    def _asked(self, asked: Call) -> Answer:
        from botocore import xform_name

        client, name = self._clients[asked.service, asked.region], xform_name(asked.operation.partition(".")[2])
        if isinstance(client, Unanswered):
            return client
        if not client.can_paginate(name):
            return getattr(client, name)(**asked.parameters)
        found: dict[str, Any] = {}
        for number, page in enumerate(client.get_paginator(name).paginate(**asked.parameters)):
            if number == MOST_PAGES:
                return Unanswered(f"{asked.shown}: the answer has more than {MOST_PAGES} pages")
            for key, value in page.items():
                found[key] = [*found.get(key, ()), *value] if isinstance(value, list) else value
        return found

    def _refused(self, asked: Call, error: Any) -> Answer:
        told = error.response.get("Error", {})
        code, message = text(told.get("Code")), text(told.get("Message"))
        if code in asked.absent:
            return None
        if code in _ENDED:
            self._ended = f"the credentials are no longer accepted ({code}): {message}"
            return Unanswered(self._ended)
        if asked.permission and (code in _DENIED_CODES or any(word in code.lower() for word in _DENIED)):
            return Unanswered(permission=asked.permission)
        return Unanswered(f"{asked.shown} in {asked.region} failed: {code}: {message}")


def open_account(profile: str = "") -> Account:
    """The account of a profile, or of the environment. Raises ``ProblemsFound`` without boto3 or without such a profile."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        hint = f"pip install 'boto3>=1.40,<2'; after pipx: pipx inject {COMMAND} boto3; after uv: its command with --with boto3"
        raise ProblemsFound([Problem("boto3 is not installed: this command asks the account through it", hint=hint)]) from None
    try:
        session = boto3.Session(profile_name=profile or None)
        if session.get_credentials() is None:
            raise no_credentials("no credentials were found", profile)
    except BotoCoreError as error:
        raise no_credentials(text(str(error)), profile) from error
    return Account(session, profile=profile)


def no_credentials(why: str, profile: str) -> ProblemsFound:
    """The one error of an account that cannot be asked anything."""
    return ProblemsFound(
        [Problem(f"cannot ask the account: {why}", key="aws:profile" if profile else "", given=profile, hint=_LOGIN)]
    )


def _credential_errors() -> tuple[type[Exception], ...]:
    from botocore import exceptions

    return (
        exceptions.CredentialRetrievalError,
        exceptions.LoginError,
        exceptions.MetadataRetrievalError,
        exceptions.NoAuthTokenError,
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.RefreshWithMFAUnsupportedError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
    )
