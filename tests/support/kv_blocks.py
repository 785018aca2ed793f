"""KV caches whose blocks tell what was written to them, so that an answer from foreign blocks is a wrong answer."""

import asyncio
import hashlib


def kv(prompt: str) -> str:
    """What a block holds after prefill of this prompt."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:8]


def words(content: list[str], count: int) -> list[str]:
    """What decode says from these blocks."""
    said = hashlib.sha256("".join(content).encode()).hexdigest()[:6]
    return [f" {said}-{number}" for number in range(count)]


def expected(prompt: str, count: int) -> str:
    return "".join(words([kv(prompt)] * blocks_of(len(prompt.split()), 4), count))


def blocks_of(tokens: int, block_tokens: int) -> int:
    return -(-tokens // block_tokens)


class Blocks:
    """The KV cache: who takes blocks waits in turn until so many are free. What a block held stays in it until it is written."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = list(range(total))
        self.content = [""] * total
        self._turn = asyncio.Lock()
        self._given = asyncio.Event()

    async def take(self, count: int) -> list[int]:
        async with self._turn:
            while len(self.free) < count:
                self._given.clear()
                await self._given.wait()
            # The block that was given back first is taken first, as vLLM does (v1/core/kv_cache_utils.py, FreeKVCacheBlockQueue).
            taken, self.free = self.free[:count], self.free[count:]
            return taken

    def give(self, blocks: list[int]) -> None:
        self.free += blocks
        self._given.set()

    @property
    def held(self) -> int:
        return self.total - len(self.free)
