"""What the models say about a path of keys: the fields there, and the kind of value they take."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from etl.config.secrets import Secret
from etl.config.values import ConfigModel
from etl.config.yaml_file import Key


@dataclass(frozen=True, slots=True)
class Place:
    """What may stand at a path: `models` the sections, `choices` the literals, `many` a list of them."""

    models: tuple[type[ConfigModel], ...] = ()
    choices: tuple[str, ...] = ()
    many: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that may stand below."""
        return tuple(
            dict.fromkeys(
                name
                for model in self.models
                for name in model.model_fields
                if not (model is Secret and name == "literal")
            )
        )

    @property
    def is_secret(self) -> bool:
        """True where a secret or a reference to one is expected."""
        return Secret in self.models

    @property
    def is_structured(self) -> bool:
        """True where the value is not a scalar."""
        return self.many or (bool(self.models) and not self.is_secret)


def place_at(root: type[ConfigModel], key: Key) -> Place:
    """What may stand at `key`; an empty `Place` where nothing is known."""
    place = Place((root,))
    for part in key:
        place = Place(place.models) if isinstance(part, int) else _below(place, part)
    return place


def without_tags(root: type[ConfigModel], location: Key) -> Key:
    """`location` of a validation error without the names of union members, which are not keys of the file."""
    key: Key = ()
    place = Place((root,))
    for part in location:
        if isinstance(part, str) and part not in place.keys and part in _tags(place):
            continue
        key = (*key, part)
        place = place_at(root, key)
    return key


def _tags(place: Place) -> set[str]:
    return {
        choice
        for model in place.models
        if "type" in model.model_fields
        for choice in _describe(model.model_fields["type"].annotation).choices
    }


def _below(place: Place, name: str) -> Place:
    found = [_describe(m.model_fields[name].annotation) for m in place.models if name in m.model_fields]
    return Place(
        tuple(model for each in found for model in each.models),
        tuple(choice for each in found for choice in each.choices),
        any(each.many for each in found),
    )


def _describe(annotation: Any) -> Place:
    leaves = list(_leaves(annotation))
    return Place(
        tuple(leaf for leaf in leaves if isinstance(leaf, type) and issubclass(leaf, ConfigModel)),
        tuple(choice for leaf in leaves if get_origin(leaf) is Literal for choice in get_args(leaf)),
        any(leaf is tuple for leaf in leaves),
    )


def _leaves(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _leaves(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _leaves(member)
    elif origin is tuple:
        yield tuple
        yield from _leaves(get_args(annotation)[0])
    else:
        yield annotation
