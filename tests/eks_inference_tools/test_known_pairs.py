"""What the rules say of models on instance types that are known to run or to fail."""

import pytest

from eks_inference.catalog.instances import instance_type
from golden import assert_golden
from known_pairs import Pair, document, pairs

ALL = pairs()


def test_there_are_enough_of_every_kind():
    """Twenty-five pairs, with failures, on Neuron and GPUs, dense and mixtures, also quantized."""
    assert len(ALL) >= 25
    assert sum(pair.they == "fails" for pair in ALL) >= 4
    assert len({(pair.name, pair.context, pair.batch, pair.source) for pair in ALL}) == len(ALL)
    families = {instance_type(pair.instance).family for pair in ALL}
    assert families >= {"inf2", "trn1", "trn2", "g4dn", "g5", "g6", "g6e", "p4d", "p4de", "p5", "p5en"}


@pytest.mark.parametrize("pair", ALL, ids=lambda one: one.name)
def test_a_verdict_that_differs_says_why(pair: Pair):
    """Where the verdict changes: give or remove ``differs`` in tests/data/known_pairs.toml."""
    assert bool(pair.differs) == pair.differ, pair.verdict


def test_the_page():
    assert_golden("../../docs/known-pairs.md", document())
