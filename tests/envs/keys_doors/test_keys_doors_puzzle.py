"""Puzzles without an engine: each has a solution of the length asked for; options that allow none are refused."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

import secret_rl as srl
from secret_rl.envs import keys_doors
from secret_rl.envs.keys_doors import PRESETS, Door, Key, Puzzle, PuzzleOptions, generate, plan
from secret_rl.envs.keys_doors.generator import MAX_PER_ROOM
from secret_rl.envs.keys_doors.puzzle import COLOURS, Status, path, reach, room_of
from secret_rl.envs.keys_doors.wad import RGB

FULL = PuzzleOptions(4, 4, core=3, traps=3, red_herrings=1, unopenable_doors=4)
ALL_COLOURS = replace(PRESETS["dmlab-like"], core=3, easy_extra=1)  # the easy extra shares the red herring's
EXTRA = PuzzleOptions(3, 3, core=2, traps=1, red_herrings=1, easy_extra=1, extra_openable_doors=1)
SOME = {**PRESETS, "2x2 two doors": replace(PRESETS["2x2-easy"], core=2), "4x4 full": FULL, "3x3 extra": EXTRA}
ROOMS = ((0, 0), (1, 0))
SIMPLE = Puzzle(2, 1, ROOMS, (Key(1, (3, 1)),), (Door(1, ROOMS, (4, 2)),), (7, 1), (1, 2), angle=0, core=1)


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
    try:
        made = PuzzleOptions(rows, columns, **counts)
    except ValueError:  # more than the grid or the colours allow
        reject()
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


def test_maps_without_a_place_for_a_further_door_go_without_or_say_so():
    """With four rooms in a ring any fourth door would be a way around a core step."""
    ring = PuzzleOptions(2, 2, core=3, extra_openable_doors=(0, 1))
    assert all(len(generate(ring, seed).doors) == 3 for seed in range(10))
    with pytest.raises(ValueError, match="no puzzle with .*extra_openable_doors=1"):
        generate(replace(ring, extra_openable_doors=1), 0)


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
        ({"rows": 1, "columns": 1, "core": 1}, "2 rooms, but there are 1 in a 1x1 grid: use more rows or columns"),
        ({"rows": 2, "columns": 2, "core": 2, "traps": 2}, "needs up to 5 rooms"),
        ({"rows": 2, "columns": 2, "easy_extra": 1}, "needs up to 5 rooms"),
        ({"rows": 2, "columns": 2, "core": 1, "unopenable_doors": 4}, "5 walls between two rooms, but there are 4"),
        ({"rows": 2, "columns": 2, "core": 1, "extra_openable_doors": 4}, "5 walls"),
        ({"core": 4, "red_herrings": 1, "unopenable_doors": 1}, "6 colours, but there are 5"),
        ({"core": 4, "unopenable_doors": 1, "easy_extra": 1}, "6 colours"),
        ({"core": 1, "useless_keys": 9}, "use fewer useless_keys"),
        ({"rows": 5, "columns": 5, "core": 5, "traps": 11, "unopenable_doors": 15}, "31 keys or doors in the engine"),
        ({"rows": 1, "columns": 5, "core": 1, "extra_openable_doors": 1}, "two rows and two columns"),
        ({"easy_extra": 2}, "easy_extra must be an integer from 0 to 1"),
        ({"core": 0}, "core must be an integer from 1"),
        ({"core": (3, 1)}, "least <= most"),
        ({"core": (1, 2, 3)}, "least, most"),
        ({"rows": 6}, "rows must be an integer from 1 to 5"),
    ],
)
def test_impossible_puzzles_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        PuzzleOptions(**options)


def test_counts_may_come_from_numpy_and_json():
    options = PuzzleOptions(core=np.int64(2), useless_keys=[0, 1])
    assert options == PuzzleOptions(core=2, useless_keys=(0, 1))
    assert generate(options, 0).core == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rooms": ((0, 0), (0, 0))}, "each once"),
        ({"rooms": ((0, 0), (2, 0))}, "outside the grid"),
        ({"rooms": ((0, 0),)}, "two neighbouring rooms"),
        ({"doors": (Door(1, ROOMS, (4, 3)),)}, "in the wall between"),
        ({"doors": (Door(1, ROOMS, (4, 1)), Door(2, ROOMS[::-1], (4, 2)))}, "one door only"),
        ({"doors": (Door(6, ROOMS, (4, 2)),)}, "colour outside 1 to 5"),
        ({"keys": (Key(0, (3, 1)),)}, "colour outside 1 to 5"),
        ({"keys": (Key(1, (4, 2)),)}, "lies in no room"),
        ({"start": (7, 1)}, "cells of their own"),
        ({"keys": (Key(1, (3, 1)),) * 31}, "31 keys"),
    ],
)
def test_invalid_maps_are_refused(change, words):
    SIMPLE.check()
    with pytest.raises(ValueError, match=words):
        replace(SIMPLE, **change).check()


def test_maps_are_drawn_from_above():
    puzzle = generate(PRESETS["dmlab-like"], 3)
    start = keys_doors.draw_map(puzzle, pixels=8, trail=np.array([[150.0, 150.0]]))
    later = keys_doors.draw_map(puzzle, Status(-1, 0b1, 0b1), pixels=8)
    assert start.shape == later.shape == (puzzle.height * 8, puzzle.width * 8, 3)
    for index, door in enumerate(puzzle.doors):
        pixel = -(door.cell[1] * 8 + 5), door.cell[0] * 8 + 4
        assert tuple(start[pixel]) == RGB[COLOURS[door.colour - 1]]
        assert (later[pixel] == start[pixel]).all() == (index > 0)
    with pytest.raises(ValueError, match="at least 4"):
        keys_doors.draw_map(puzzle, pixels=1)


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
    assert keys_doors.door_causes(data).tolist() == whole
    assert keys_doors.door_causes(data[1:]).tolist() == whole[6:], "a slice is a view into longer arrays"
    with pytest.raises(ValueError, match="no annotation door_opened and no key_picked"):
        keys_doors.door_causes(srl.collect("secret_rl/Triggers-v0", 3))
