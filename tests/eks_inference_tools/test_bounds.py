"""The walker that compares recorded values with what an API takes."""

from typing import Any

import pytest

from eks_inference_tools.check.value_rules import faults

NAME = {"pattern": r"^[\w-]+$", "minLength": 2, "maxLength": 5}
GROUP = {
    "required": ["name"],
    "properties": {
        "name": NAME,
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["on", "off"]},
        "zones": {"minItems": 1, "maxItems": 2, "items": {"pattern": "^az"}},
        "labels": {"maxProperties": 1, "propertyNames": {"maxLength": 3}, "additionalProperties": {"minLength": 1}},
        "free": {},
        "step": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+%$"},
        "ports": {
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"additionalProperties": False, "properties": {"port": {"type": "integer"}, "protocol": {}}},
        },
    },
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "ab"},
        {"name": "abcde", "size": 1, "mode": "on", "zones": ["az"], "labels": {"abc": "x"}},
        {"name": "ab", "size": 9, "mode": None, "zones": ("az", "az1"), "labels": {}, "free": {"any": [1]}, "other": object()},
        {"name": "ab", "step": 0, "ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 2.0}]},
        {"name": "ab", "step": "5%", "ports": [{"port": "<a.port>"}, {"port": "<a.port>"}, "<unknown>"]},
        # A placeholder stands for anything, alone and inside a text.
        {"name": "<net.id>", "size": "<unknown>", "mode": "[secret]", "zones": "<net.zones>", "labels": "<unknown>"},
        {"name": "<net.id>-a", "zones": ["<net.zone>a"]},
    ],
)
def test_what_is_taken(value: Any):
    assert not list(faults(value, GROUP))


@pytest.mark.parametrize(
    ("value", "path", "allowed"),
    [
        ({}, ("name",), "a value: the key is required"),
        ({"name": None}, ("name",), "a value: the key is required"),
        ({"name": "a"}, ("name",), "at least 2 characters"),
        ({"name": "abcdef"}, ("name",), "at most 5 characters"),
        ({"name": "a b"}, ("name",), r"the form ^[\w-]+$"),
        ({"name": "ab\n"}, ("name",), r"the form ^[\w-]+$"),
        ({"name": "äb"}, ("name",), r"the form ^[\w-]+$"),
        ({"name": "<no token> "}, ("name",), r"at most 5 characters, the form ^[\w-]+$"),
        ({"name": "<net.id>-abcde"}, ("name",), "at most 5 characters"),
        ({"name": "ab", "size": 0}, ("size",), "at least 1"),
        ({"name": "ab", "size": 10}, ("size",), "at most 9"),
        ({"name": "ab", "size": "3"}, ("size",), "a value of type integer"),
        ({"name": "ab", "size": True}, ("size",), "a value of type integer"),
        ({"name": "ab", "mode": ""}, ("mode",), "one of on, off"),
        ({"name": "ab", "zones": []}, ("zones",), "at least 1 and at most 2 items"),
        ({"name": "ab", "zones": ["az", "az", "az"]}, ("zones",), "at least 1 and at most 2 items"),
        ({"name": "ab", "zones": ["az", "x"]}, ("zones", 1), "the form ^az"),
        ({"name": "ab", "labels": {"abcd": "x"}}, ("labels", "abcd"), "at most 3 characters"),
        ({"name": "ab", "labels": {"a": ""}}, ("labels", "a"), "at least 1 characters"),
        ({"name": "ab", "step": True}, ("step",), "a value of type integer or string"),
        ({"name": "ab", "step": -1}, ("step",), "at least 0"),
        ({"name": "ab", "step": "5"}, ("step",), "the form ^[0-9]+%$"),
        ({"name": "ab", "ports": [{"port": 1.5}]}, ("ports", 0, "port"), "a value of type integer"),
        ({"name": "ab", "ports": [{"prot": 1}]}, ("ports", 0, "prot"), "a known field, such as port"),
        ({"name": "ab", "ports": [{"xyz": 1, "abc": None}]}, ("ports", 0, "xyz"), "a known field"),
        ({"name": "ab", "ports": [{"port": 1}, {"port": 1}]}, ("ports", 1), "one item with this port and protocol"),
        ({"name": "ab", "labels": {"a": "x", "b": "x"}}, ("labels",), "at most 1 keys"),
    ],
)
def test_what_is_refused_and_where(value: Any, path: tuple[str | int, ...], allowed: str):
    assert [(where, words) for where, _, words in faults(value, GROUP)] == [(path, allowed)]


def test_every_fault_is_found():
    found = {path for path, _, _ in faults({"size": 0, "mode": "x", "zones": ["b", "c"]}, GROUP)}
    assert found == {("name",), ("size",), ("mode",), ("zones", 0), ("zones", 1)}


@pytest.mark.parametrize(("form", "value"), [(r"^a\$$", "a$\n"), ("^[$]$", "$\n"), ("^a$|^b$", "a\n"), (r"^a\\$", "a\\\n")])
def test_a_line_break_after_the_end_is_not_part_of_a_text(form: str, value: str):
    assert not list(faults(value[:-1], {"pattern": form}))
    assert list(faults(value, {"pattern": form}))


def test_words_for_a_pattern():
    lower = {"pattern": "^[a-z]+$", "description": "lower-case letters"}
    assert [words for *_, words in faults("B", lower)] == ["lower-case letters"]
