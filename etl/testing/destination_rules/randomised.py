"""Random changes, cut into random batches, come to what a plain list of rows comes to."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl.events import Event, RowChanges
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.testing.builders import INT8, Change, Delete, Insert, PlainRow, Update, altered, column, table_schema
from etl.testing.destination_kit import DestinationKit, Model, Scenario, World

KEYED = table_schema(column("k", 1, INT8), column("v", 2), column("w", 3), key=("k",))
COMPOSITE = table_schema(column("k", 1, INT8), column("v", 2), column("j", 3, INT8), key=("j", "k"))
FULL_KEYED = table_schema(*KEYED.columns, key=("k",), identity=ReplicaIdentity.FULL)
KEYLESS = table_schema(column("k", 1, INT8), column("v", 2), key=(), identity=ReplicaIdentity.FULL)

_SMALL: dict[str, list[object]] = {
    "k": [0, 1, 2, 3],
    "j": [0, 1],
    "v": [None, "", "a", "b"],
    "w": [None, "x", "y"],
}


class RandomRules:
    """Driven by Hypothesis; a failing example is shrunk to the few changes that matter."""

    def test_random_changes_of_a_keyed_table(self, kit: DestinationKit) -> None:
        _check(kit, KEYED)

    def test_random_changes_of_a_table_with_a_composite_key(self, kit: DestinationKit) -> None:
        _check(kit, COMPOSITE)

    def test_random_changes_under_full_identity_with_a_key(self, kit: DestinationKit) -> None:
        _check(kit, FULL_KEYED)

    def test_random_changes_of_a_keyless_table(self, kit: DestinationKit) -> None:
        if kit.connect().capabilities.exact_old_rows:
            _check(kit, KEYLESS)


def play(data: st.DataObject, scenario: Scenario, schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
    """Draw changes into `scenario`; now and then a truncate, a commit or a column that comes or goes."""
    base = schema
    for step in range(data.draw(st.integers(0, 12), "runs")):
        match data.draw(st.sampled_from(["rows"] * 8 + ["truncate", "commit", "alter"]), "kind"):
            case "truncate":
                scenario.truncate(schema)
            case "commit":
                scenario.commit()
            case "alter":
                has_more = len(schema.columns) > len(base.columns)
                columns = base.columns if has_more else (*base.columns, column("w2", 10 + step))
                schema = altered(base, *columns, at=step + 1)
                scenario.relation(schema)
            case _:
                model = scenario.models[schema.oid]
                changes = []
                for _ in range(data.draw(st.integers(1, 6), "changes")):
                    change = draw_change(data, model)
                    model.apply(change)
                    changes.append(change)
                scenario.events.append(scenario.stream.rows(schema, *changes))
    return schema


def draw_change(data: st.DataObject, model: Model) -> Change:
    """A change that Postgres could make to the rows as they are."""
    schema, rows = model.schema, model.rows()
    new: dict[str, object] = {
        c.name: data.draw(st.sampled_from(_SMALL.get(c.name, [None, "n"])), c.name) for c in schema.columns
    }
    keys = [c.name for c in schema.key_columns]
    clash = next((row for row in rows if keys and all(row[k] == new[k] for k in keys)), None)
    if not rows or (clash is None and data.draw(st.booleans(), "insert")):
        return Insert(new) if clash is None else Delete(clash)
    old = data.draw(st.sampled_from(rows), "old")
    if data.draw(st.integers(0, 3), "delete") == 0:
        return Delete(old)
    if clash is not None and clash is not old:
        new.update({k: old[k] for k in keys})
    if schema.old_image_is_full:
        return Update(new, old=old)
    kept = frozenset(
        c.name
        for c in schema.columns
        if c.name not in keys and data.draw(st.booleans(), f"{c.name} unchanged")
    )
    moved = any(old[k] != new[k] for k in keys)
    return Update(new, old=old if moved else None, unchanged=kept)


def cut(data: st.DataObject, events: list[Event]) -> list[list[Event]]:
    """The events in batches: cut between events, and inside runs."""
    pieces: list[Event] = []
    for event in events:
        if isinstance(event, RowChanges) and len(event) > 1 and data.draw(st.booleans(), "cut a run"):
            place = data.draw(st.integers(1, len(event) - 1), "place")
            pieces += [event.slice(0, place), event.slice(place)]
        else:
            pieces.append(event)
    batches: list[list[Event]] = [[]]
    for piece in pieces:
        batches[-1].append(piece)
        if data.draw(st.integers(0, 2), "end of batch") == 0:
            batches.append([])
    return batches


def _check(kit: DestinationKit, schema: ReplicatedTableSchema) -> None:
    world = World(kit)

    @settings(
        max_examples=kit.examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        deadline=None,
    )
    @given(st.data())
    def arrives(data: st.DataObject) -> None:
        scenario = Scenario()
        scenario.start(schema)
        last = play(data, scenario, schema)
        world.copy(schema)  # anew, in place of the last example's table
        for events in cut(data, scenario.events):
            assert not world.write(events).unmatched
        assert world.rows(last) == scenario.expected(last)

    arrives()


__all__ = ["COMPOSITE", "FULL_KEYED", "KEYED", "KEYLESS", "PlainRow", "RandomRules"]
