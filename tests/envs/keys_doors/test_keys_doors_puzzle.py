"""Puzzles without an engine: each has a solution of the length asked for; options that allow none are refused."""

import io
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.envs.keys_doors import PRESETS, PuzzleOptions, door_causes, generate, plan
from secret_rl.envs.keys_doors.generator import MAX_PER_ROOM
from secret_rl.envs.keys_doors.puzzle import COLOURS, Status, path, reach, room_of
from secret_rl.envs.keys_doors.wad import key_picture, most_text, png, textmap, walls

FULL = PuzzleOptions(4, 4, core=3, traps=3, red_herrings=1, unopenable_doors=4)
ALL_COLOURS = replace(PRESETS["dmlab-like"], core=3, easy_extra=1)  # the easy extra shares the red herring's
EXTRA = PuzzleOptions(3, 3, core=2, traps=1, red_herrings=1, easy_extra=1, extra_openable_doors=1)
SOME = {**PRESETS, "2x2 two doors": replace(PRESETS["2x2-easy"], core=2), "4x4 full": FULL, "3x3 extra": EXTRA}


def puzzles(name, count=60):
    return [generate(SOME[name], seed) for seed in range(count)]


@st.composite
def options(draw):
    rows, columns = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    counts = {
        "core": draw(st.integers(1, 4)),
        "traps": draw(st.integers(0, 1)),  # with a core of 1 they all lie at the start, which has few walls
        "red_herrings": draw(st.integers(0, 1)),
        "easy_extra": draw(st.sampled_from([0, 1, (0, 1)])),
        "extra_openable_doors": (0, draw(st.integers(0, 3))),
        "unopenable_doors": draw(st.integers(0, 2)),
        "useless_keys": (0, draw(st.integers(0, 2))),
    }
    made = PuzzleOptions(rows, columns, **counts)
    own_colour = made.least("easy_extra") and not made.red_herrings  # else it may share theirs
    assume(made.core + made.red_herrings + bool(made.unopenable_doors) + own_colour <= len(COLOURS))
    assume(made.core + made.traps + made.red_herrings + made.most("easy_extra") + 3 < rows * columns)  # room to spare
    return made


@given(options(), st.integers(0, 2**63))
@example(ALL_COLOURS, 0)
def test_puzzles_hold_what_was_asked_for(asked, seed):
    puzzle = generate(asked, seed)
    keys, doors = Counter(k.colour for k in puzzle.keys), Counter(d.colour for d in puzzle.doors)

    def within(count, name):
        return asked.least(name) <= count <= asked.most(name)

    assert asked.core == puzzle.core
    assert sum(n for colour, n in doors.items() if colour not in keys) == asked.unopenable_doors
    assert within(sum(n for colour, n in keys.items() if colour not in doors), "useless_keys")
    core = [key.colour for key in puzzle.keys[: puzzle.core]]
    assert [door.colour for door in puzzle.doors[: puzzle.core]] == core
    assert all(keys[colour] == 1 for colour in core)
    # A door that leads to a room of its own makes the rooms a tree; each one more joins two that are there.
    openable = [index for index, door in enumerate(puzzle.doors) if door.colour in keys]
    reached = len(reach(puzzle, sum(1 << index for index in openable), puzzle.rooms[0])) - 1
    assert within(len(openable) - reached, "extra_openable_doors")
    beside = asked.traps + asked.red_herrings
    easy = reached - asked.core - beside
    assert within(easy, "easy_extra")
    if easy:
        key, door = puzzle.keys[asked.core + asked.red_herrings], puzzle.doors[asked.core + beside]
        assert key.colour == door.colour not in core
        assert room_of(key.cell) == puzzle.rooms[0] in door.rooms


@given(options(), st.integers(0, 2**63))
@example(ALL_COLOURS, 0)
@example(FULL, 0)
def test_every_core_step_is_needed(asked, seed):
    """The core is the shortest solution, and without any one of its keys or doors there is no solution at all."""
    puzzle = generate(asked, seed)
    core = [(kind, step) for step in range(puzzle.core) for kind in ("key", "door")]
    assert plan(puzzle) == [*core, ("goal", 0)]
    for step in range(puzzle.core):
        for kind in ("keys", "doors"):
            things = list(getattr(puzzle, kind))
            things[step] = replace(things[step], colour=0)  # a key that opens nothing, a door that nothing opens
            assert plan(replace(puzzle, **{kind: tuple(things)})) is None


def test_same_seed_same_puzzle_and_optional_parts_come_in_some_maps():
    many = puzzles("dmlab-like", 200)
    assert many[:10] == puzzles("dmlab-like", 10) and len(set(many)) == 200
    doors = Counter(len(p.doors) - p.core - 4 for p in many)  # less a trap, a red herring and two unopenable ones
    assert doors.keys() == {0, 1, 2} and min(doors.values()) > 30  # easy extra and openable: neither, one, both
    assert {len(p.keys) - p.core for p in many} == {1, 2, 3}


@pytest.mark.parametrize("name", SOME)
def test_objects_never_block_the_way(name):
    """Around all objects there is a way from the start to every object and door that can be reached."""
    for puzzle in puzzles(name, 20):
        objects = [puzzle.goal, *(k.cell for k in puzzle.keys)]
        assert len(set(objects)) == len(objects)
        assert max(Counter(map(room_of, objects)).values()) <= MAX_PER_ROOM
        assert puzzle.start not in objects and room_of(puzzle.start) == puzzle.rooms[0]
        all_open = Status(-1, 0, (1 << len(puzzle.doors)) - 1)
        for cell in [*objects, *(d.cell for d in puzzle.doors)]:
            if room_of(cell) is None or room_of(cell) in reach(puzzle, all_open.opened, puzzle.rooms[0]):
                assert path(puzzle, all_open, puzzle.start, cell) is not None


def test_spent_and_lost_keys_are_gone():
    for seed in range(20):  # spending the core key on the trap's door leaves no solution
        trap = generate(PuzzleOptions(3, 3, core=1, traps=1), seed)
        assert plan(trap, Status(held=-1, taken=0b1, opened=0b10)) is None
    for puzzle in puzzles("3x3", 20):
        assert plan(puzzle, Status(held=-1, taken=0b111, opened=0)) is None
        assert plan(puzzle, Status(0, 0b001, 0))[0] == ("door", 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"easy_extra": 2}, "easy_extra must be an integer from 0 to 1"),
        ({"core": 0}, "core must be an integer from 1"),
        ({"core": (3, 1)}, "least <= most"),
        ({"rows": 6}, "rows must be an integer from 1 to 5"),
        ({"rows": 1, "columns": 1, "core": 1}, "use more rows or columns"),
        ({"rows": 2, "columns": 2, "core": 1, "unopenable_doors": 4}, "no puzzle"),
        ({"rows": 2, "columns": 2, "core": 3, "extra_openable_doors": 1}, "extra_openable_doors=1"),
        ({"core": 4, "red_herrings": 1, "unopenable_doors": 1}, "there are 5 colours"),
        ({"core": 4, "unopenable_doors": 1, "useless_keys": 1}, "or ranges such as"),
        ({"core": 1, "useless_keys": 9}, "fewer doors and keys"),
    ],
)
def test_impossible_puzzles_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        generate(PuzzleOptions(**options), 0)


def episode(picked, opened):
    annotations = {"key_picked": np.array(picked), "door_opened": np.array(opened)}
    zeros = np.zeros(len(picked), np.int64)
    return {"observations": zeros, "actions": zeros, "rewards": zeros, "terminated": True, "annotations": annotations}


def test_a_door_is_caused_by_the_latest_pick_up_of_its_colour_in_the_same_episode():
    data = srl.Trajectories.from_episodes(
        [
            episode([0, 2, 0, 0, 0, 0], [0, 0, 0, 2, 0, 0]),
            episode([0, 0, 0, 0], [0, 0, 2, 0]),  # a key of the episode before does not count
            episode([1, 0, 3, 0, 1, 0, 0], [0, 0, 0, 3, 0, 0, 1]),
        ]
    )
    whole = [-1, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, -1, -1, 4]
    assert door_causes(data).tolist() == whole
    assert door_causes(data[1:]).tolist() == whole[6:], "a slice is a view into longer arrays"
    with pytest.raises(ValueError, match="no annotation door_opened and key_picked"):
        door_causes(srl.collect("secret_rl/Triggers-v0", 3))


# ---- the file that the engine plays from: a broken one would crash the engine, and Python with it ----


@pytest.mark.parametrize("options", [*PRESETS.values(), FULL])
def test_maps_fit_their_place_and_close_their_rooms(options):
    for seed in range(20):
        puzzle = generate(options, seed)
        text, outline = textmap(puzzle), walls(puzzle)
        assert len(text) < most_text(options)
        assert text.count(b"linedef{") == len(outline) + 4 + 3 * len(puzzle.doors)
        # A door takes a cell's side from both of its rooms, and its own cell has two walls.
        length = sum(abs(x1 - x0) + abs(y1 - y0) for (x0, y0), (x1, y1) in outline)
        assert length == 100 * 10 * len(puzzle.rooms)


def test_pictures_are_png_files():
    image = pytest.importorskip("PIL.Image")
    picture = key_picture("red")
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png(picture, (16, 44))))), picture)
