"""Sets of neighbouring Neuron devices: what the extension's stand-in may hand out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference_tools.simulate.world.scheduled_pods import allocate, device_sets, shortage, spans

INF2 = instance_type("inf2.48xlarge")
TRN2 = instance_type("trn2.48xlarge")
SHAPES = st.sampled_from([instance_type(name) for name in neuron_instance_types()])


def everything(shape: InstanceType) -> frozenset[int]:
    return frozenset(range(shape.devices))


@given(SHAPES, st.data())
def test_pods_get_disjoint_runs_of_the_size_they_asked_for(shape: InstanceType, data: st.DataObject):
    free = everything(shape)
    for count in data.draw(st.lists(st.sampled_from(shape.legal_device_counts), max_size=20)):
        found = allocate(free, count, shape)
        if found is None:
            assert all(not free.issuperset(one) for one in device_sets(count, shape))
        else:
            assert found == tuple(range(found[0], found[0] + count))
            assert free.issuperset(found)
            free -= set(found)


@given(SHAPES, st.integers(-1, 20))
def test_there_are_sets_of_exactly_the_legal_sizes(shape: InstanceType, count: int):
    sets = device_sets(count, shape)
    assert bool(sets) == (count in shape.legal_device_counts)
    assert all(everything(shape).issuperset(one) for one in sets)
    assert {device for one in sets for device in one} in (set(), everything(shape))


@given(SHAPES, st.data())
def test_a_freed_set_can_be_had_again(shape: InstanceType, data: st.DataObject):
    free = frozenset(data.draw(st.sets(st.sampled_from(sorted(everything(shape))))))
    count = data.draw(st.sampled_from(shape.legal_device_counts))
    held = data.draw(st.sampled_from(device_sets(count, shape)))
    assert allocate(free | set(held), count, shape) is not None


def test_three_pods_of_four_fill_an_inf2_48xlarge():
    free, given_out = everything(INF2), []
    while found := allocate(free, 4, INF2):
        given_out.append(found)
        free -= set(found)
    assert given_out == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]
    assert shortage(free, 4, INF2) == "no 4 contiguous free Neuron devices of 12: free none"


def test_eight_free_devices_are_no_set_of_eight_when_one_between_them_is_taken():
    free = everything(INF2) - {2, 5, 8, 11}
    assert len(free) == 8
    assert allocate(free, 8, INF2) is None
    assert allocate(free, 2, INF2) == (0, 1)
    assert shortage(free, 8, INF2) == "no 8 contiguous free Neuron devices of 12: free 0-1, 3-4, 6-7, 9-10"


def test_a_ring_is_not_followed_across_its_end():
    assert allocate(frozenset({0, 11}), 2, INF2) is None


def test_a_torus_gives_aligned_blocks():
    assert device_sets(4, TRN2) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))
    assert allocate(everything(TRN2) - {0}, 8, TRN2) == tuple(range(8, 16))
    assert allocate(frozenset(range(2, 6)), 4, TRN2) is None
    assert shortage(everything(TRN2), 7, TRN2) == "trn2.48xlarge gives a pod 1, 4, 8, 16 Neuron devices, not 7"


def test_a_pod_without_devices_needs_none():
    assert allocate(frozenset(), 0, INF2) == ()


def test_instances_without_neuron_devices_have_no_sets():
    assert allocate(frozenset(), 1, instance_type("m5.large")) is None
    assert shortage(frozenset(), 1, instance_type("m5.large")) == "m5.large gives a pod no Neuron devices, not 1"


@pytest.mark.parametrize(("devices", "words"), [((), "none"), ((5,), "5"), ((3, 0, 1, 8), "0-1, 3, 8"), (range(12), "0-11")])
def test_devices_are_written_as_runs(devices, words):
    assert spans(devices) == words
