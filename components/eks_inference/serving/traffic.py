"""What clients ask of a server, as a stack file says it. ``speed/rules.py`` judges whether the server takes it."""

import math
from collections.abc import Sequence
from typing import Annotated, Self, get_args

from pydantic import Field, model_validator

from eks_inference.catalog.architectures import PictureSize
from eks_inference.specs.base import Spec

_SIZES = get_args(PictureSize)
_Share = Annotated[float, Field(ge=0, le=1)]


class TrafficSpec(Spec):
    """Requests of the busiest time, by their rate or by the users who wait for answers."""

    rate: float | None = Field(default=None, gt=0, description="Requests a second, at random times. Either this or users.")
    users: int | None = Field(default=None, ge=1, description="Users who send the next request as soon as they have an answer.")
    input_tokens: int = Field(ge=1, description="Tokens of a prompt, on average.")
    output_tokens: int = Field(ge=1, description="Tokens of an answer, on average.")
    pictures: float = Field(
        default=0,
        ge=0,
        exclude_if=lambda pictures: not pictures,
        description="Average number of pictures in a request, in addition to the tokens of its prompt. Their tokens count like "
        "others; the work of the model's tower is left out. Default: none.",
    )
    picture_size: PictureSize = Field(
        default="1024x1024", exclude_if=lambda size: size == "1024x1024", description="Their size in pixels."
    )
    cached_share: float = Field(
        default=0, ge=0, lt=1, description="Share of a prompt that the prefix cache has already. Default: nothing."
    )
    hours: tuple[_Share, ...] = Field(
        default=(),
        description="That load's share in each of a day's 24 hours; their mean decides what tokens cost. "
        "Default: it is the same all day.",
    )

    @model_validator(mode="after")
    def _one_load(self) -> Self:
        if (self.rate is None) == (self.users is None):
            raise ValueError("traffic has either rate or users; give exactly one of them")
        if self.hours and len(self.hours) != 24:
            raise ValueError(f"hours: {len(self.hours)} shares where a day has 24 hours")
        if self.hours and not sum(self.hours):
            raise ValueError("hours: no hour has any load; leave traffic out")
        return self

    def part(self, share: float) -> Self:
        """The part of it that one of several servers gets."""
        users = self.users and math.ceil(self.users * share)
        return self.model_copy(update={"users": users, "rate": self.rate and self.rate * share})

    def with_tokens_of_pictures(self, each: int) -> Self:
        return self.model_copy(update={"input_tokens": self.input_tokens + round(self.pictures * each), "pictures": 0})

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Several at once, all of them rates or all users, as one with their mean lengths and the largest pictures of any."""
        if len(parts) == 1:
            return parts[0]
        asked = [(part.users or part.rate or 0.0, part) for part in parts]
        hours = [sum(load * (one.hours[hour] if one.hours else 1) for load, one in asked) for hour in range(24)]
        most, requests = max(hours), sum(load for load, _ in asked)
        prompts = sum(load * one.input_tokens for load, one in asked)
        found = {
            "users" if parts[0].users else "rate": math.ceil(most) if parts[0].users else most,
            "input_tokens": round(prompts / requests),
            "output_tokens": round(sum(load * one.output_tokens for load, one in asked) / requests),
            "pictures": sum(load * one.pictures for load, one in asked) / requests,
            "picture_size": max((one.picture_size for _, one in asked if one.pictures), key=_SIZES.index, default=_SIZES[1]),
            "cached_share": sum(load * one.input_tokens * one.cached_share for load, one in asked) / prompts,
            "hours": [load / most for load in hours] if any(part.hours for part in parts) else (),
        }
        return cls.model_validate(found)

    @property
    def mean_share(self) -> float:
        """A whole day's load as a share of the busiest time's."""
        return sum(self.hours) / len(self.hours) if self.hours else 1.0
