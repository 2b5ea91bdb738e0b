"""Stories: what happens at a source, written beside the test that says what must have become of it.

    @story(given=["CREATE TABLE items (id int PRIMARY KEY)"], when=["ALTER TABLE items ADD COLUMN a int", …])
    def test_an_added_column_is_added(outcome): assert outcome.names("items") == ["id", "a"]

Starting a daemon costs far more than a story, so all stories of a directory share one source database, each in a schema
of its own, and the same runs of three pipelines:

- ``plain`` takes each part of the story by one ``etl replicate --once`` that finds everything waiting;
- ``crashed`` does the same in small batches, and is killed at several places on the way and started again;
- ``live`` runs while the stories happen, as a role whose settings are as hostile as settings can be.

An outcome is given to a test only when the three destinations are equal; what the test sees is ``plain``.
Stories in which a table is meant to fail (`breaks=True`) have a database of their own and no ``live`` pipeline, for a
failed table holds back the slot of its whole pipeline.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import pytest

from etl.testing.postgres import Database, PostgresServer
from etl.testing.warm import WarmEtl
from tests.story import Step, Story
from tests.story_world import HOSTILE_SETTINGS, Outcome, World

__all__ = ["HOSTILE_SETTINGS", "Outcome", "outcome", "pytest_collection_modifyitems", "story"]


def story(
    given: Sequence[Step],
    *,
    when: Sequence[Step] = (),
    later: Sequence[Step] = (),
    publish: Sequence[str] | None = None,
    changelog: Sequence[str] = (),
    breaks: bool = False,
) -> pytest.MarkDecorator:
    """Tell a story to a test (or to every test of a class).

    Each step is a statement in a transaction of its own, a tuple of steps one transaction. `given` happens before the
    copy, `when` after it, `later` after the daemon was started anew. ``{schema}`` is the story's schema, which is also
    the search path. `publish` names what the publication publishes (``items (id, a)``); without it, every table.
    `changelog` names the tables in that mode.
    """
    told = Story(
        tuple(given),
        tuple(when),
        tuple(later),
        None if publish is None else tuple(publish),
        tuple(changelog),
        breaks,
    )
    return pytest.mark.story(told)


def story_of(item: pytest.Item) -> Story | None:
    """The story a test asks for."""
    marker = item.get_closest_marker("story")
    return marker.args[0] if marker else None


# --- what the conftest files of the directories that tell stories import ----------------------------------------------

#: The directory of the tests and `Story.breaks` → their world, or why there is none.
_WORLDS = pytest.StashKey[dict[tuple[Path, bool], World | Exception]]()

#: The first test of a world waits for all of its stories.
_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that wait for stories the time, and keep them on one worker."""
    for item in items:
        if story_of(item) is not None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
            item.add_marker(pytest.mark.xdist_group(f"stories of {item.path.parent.name}"))


@pytest.fixture
def outcome(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    warm: WarmEtl,
) -> Outcome:
    """What became of this test's story, the same in every pipeline."""
    told = story_of(request.node)
    assert told is not None, "the test tells no story"
    key = (request.path.parent, told.breaks)
    worlds = request.config.stash.setdefault(_WORLDS, {})
    if key not in worlds:
        try:
            directory = tmp_path_factory.mktemp(key[0].name)
            schemas = _schemas(request.session.items, key)
            worlds[key] = _world(request.session, postgres, directory, schemas, warm)
        except Exception as error:
            worlds[key] = error
            raise
    world = worlds[key]
    if not isinstance(world, World):
        pytest.fail(f"the stories could not be told, see the first test's error: {world!r:.200}")
    if told in world.refused:
        raise world.refused[told]
    result = Outcome(world, told)
    disagreement = world.disagreement(result.schema)
    assert disagreement is None, f"the pipelines differ from plain: {disagreement}"
    return result


def _schemas(items: Sequence[pytest.Item], key: tuple[Path, bool]) -> dict[Story, str]:
    """The stories that this session tells in one world, and the schema of each."""
    schemas: dict[Story, str] = {}
    for item in items:
        told = story_of(item)
        if told is not None and (item.path.parent, told.breaks) == key and told not in schemas:
            title = re.sub(r"\W+", "_", item.name.removeprefix("test_"))
            schemas[told] = f"s{len(schemas):03}_{title}"[:50]
    return schemas


def _world(
    session: pytest.Session,
    postgres: PostgresServer,
    directory: Path,
    schemas: dict[Story, str],
    warm: WarmEtl,
) -> World:
    database = Database(postgres, f"etl_{secrets.token_hex(6)}")
    postgres.create_database(database.name)
    breaks = any(told.breaks for told in schemas)
    variants = ["plain", "crashed"] if breaks else ["plain", "crashed", "live"]
    first_id = 101 + 10 * len(session.config.stash[_WORLDS])
    world = World(database, directory, schemas, variants, first_id, warm)

    def leave() -> None:
        postgres.drop_database(database.name)
        world.close()

    session.addfinalizer(leave)
    world.tell()
    return world
