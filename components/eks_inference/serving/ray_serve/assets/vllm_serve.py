"""A Ray Serve deployment that runs vLLM's own OpenAI server and forwards requests to it.

Ray gives each replica its NeuronCores (``NEURON_RT_VISIBLE_CORES``, from the resource ``neuron_cores``) and the replica's child
inherits them. Ray hands out the lowest free numbers and all blocks are of one size, so a block's cores are neighbours.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# httpx, fastapi and ray are in the server's image, not in this library's environment.
import os
from collections.abc import AsyncIterator

import httpx
from drain import MARK
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from ray import serve
from vllm_engine import Engine, Settings
from vllm_metrics import Relay

_TO_ENGINE = ("accept", "authorization", "content-type")
_TO_CLIENT = ("content-length", "content-type", "x-request-id")

# serve.ingress copies the application while it decorates the class: what the endpoints use stands above it.
app = FastAPI()


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Closes the connection also when the client goes away: vLLM then stops generating for nobody."""
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


@serve.deployment
@serve.ingress(app)
class VLLMDeployment:
    """One replica: one vLLM server. Its constructor returns when the model is loaded."""

    def __init__(self) -> None:
        self.engine = Engine(Settings.from_environment(os.environ))
        self.engine.start()
        Relay(self.engine.url, serve.metrics.Gauge).start()
        # Generations take minutes and vLLM queues what exceeds its batch: neither is a fault.
        self.client = httpx.AsyncClient(
            base_url=self.engine.url,
            timeout=httpx.Timeout(None, connect=5),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            headers={"accept-encoding": "identity"},
            trust_env=False,  # a proxy for downloads is not for loopback
        )

    async def check_health(self) -> None:
        """Ray Serve replaces the replica when this raises."""
        self.engine.check()
        (await self.client.get("/health", timeout=10)).raise_for_status()

    def __del__(self) -> None:
        """Ray Serve calls this when it ends the replica."""
        if hasattr(self, "engine"):
            self.engine.stop()

    @app.get("/v1/models")
    @app.post("/v1/chat/completions")
    @app.post("/v1/completions")
    async def forward(self, request: Request) -> Response:
        """Passes a request on and its answer back as it comes, streamed or not. Refuses it while the pod is ending."""
        if os.path.exists(MARK):
            error = {"error": {"message": "this replica is ending, try again", "code": 503}}
            return JSONResponse(error, status_code=503, headers={"retry-after": "1"})
        headers = {name: request.headers[name] for name in _TO_ENGINE if name in request.headers}
        onward = self.client.build_request(request.method, request.url.path, content=await request.body(), headers=headers)
        try:
            answer = await self.client.send(onward, stream=True)
        except httpx.TransportError as error:
            return JSONResponse({"error": {"message": f"the engine does not answer: {error}", "code": 503}}, status_code=503)
        kept = {name: answer.headers[name] for name in _TO_CLIENT if name in answer.headers}
        return StreamingResponse(_body(answer), status_code=answer.status_code, headers=kept)


deployment = VLLMDeployment.bind()
