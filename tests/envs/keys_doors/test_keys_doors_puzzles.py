"""Puzzles without an engine: each has a solution of the length asked for; options that allow none are refused."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from secret_rl.envs.keys_doors import PRESETS, Door, Key, Puzzle, PuzzleOptions, WorldOptions, draw_map, generate, plan
from secret_rl.envs.keys_doors.acs import behavior
from secret_rl.envs.keys_doors.art import key, png
from secret_rl.envs.keys_doors.options import MAX_PER_ROOM
from secret_rl.envs.keys_doors.planner import Status, reach
from secret_rl.envs.keys_doors.policies import path
from secret_rl.envs.keys_doors.puzzle import room_cells, room_of
from secret_rl.envs.keys_doors.textmap import most_text, textmap, walls
from secret_rl.envs.keys_doors.wad import Wad

FULL = PuzzleOptions(4, 4, core=3, traps=3, red_herrings=1, unopenable_doors=4)
ALL_COLOURS = replace(PRESETS["dmlab-like"], core=3, easy_extra=1)  # the easy extra shares the red herring's
EXTRA = PuzzleOptions(3, 3, core=2, traps=1, red_herrings=1, easy_extra=1, extra_openable_doors=1)
SOME = {**PRESETS, "2x2 two doors": replace(PRESETS["2x2-easy"], core=2), "4x4 full": FULL, "3x3 extra": EXTRA}


def puzzles(name, count=60):
    return [generate(SOME[name], seed) for seed in range(count)]


@pytest.mark.parametrize("name", SOME)
def test_the_shortest_solution_is_the_core(name):
    """All core steps are needed, in their order, and traps, herrings and the rest are not."""
    for puzzle in puzzles(name):
        steps = [move for step in range(puzzle.core) for move in (("key", step), ("door", step))]
        assert plan(puzzle) == [*steps, ("goal", 0)]


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


def within(count, bounds):
    return bounds == count if isinstance(bounds, int) else bounds[0] <= count <= bounds[1]


@given(options(), st.integers(0, 2**63))
@example(ALL_COLOURS, 0)
def test_puzzles_hold_what_was_asked_for(asked, seed):
    puzzle = generate(asked, seed)
    keys, doors = Counter(k.colour for k in puzzle.keys), Counter(d.colour for d in puzzle.doors)
    assert asked.core == puzzle.core
    assert sum(n for colour, n in doors.items() if colour not in keys) == asked.unopenable_doors
    assert within(sum(n for colour, n in keys.items() if colour not in doors), asked.useless_keys)
    core = [key.colour for key in puzzle.keys[: puzzle.core]]
    assert [door.colour for door in puzzle.doors[: puzzle.core]] == core
    assert all(keys[colour] == 1 for colour in core)
    # A door that leads to a room of its own makes the rooms a tree; each one more joins two that are there.
    opened = [door for door in puzzle.doors if door.colour in keys]
    reached = reach(puzzle, sum(1 << puzzle.doors.index(door) for door in opened), puzzle.rooms[0])
    further = len(opened) - (len(reached) - 1)
    assert within(further, asked.extra_openable_doors)
    easy = len(reached) - 1 - asked.core - asked.traps - asked.red_herrings
    assert within(easy, asked.easy_extra)
    if easy:
        key, door = (
            puzzle.keys[asked.core + asked.red_herrings],
            puzzle.doors[asked.core + asked.traps + asked.red_herrings],
        )
        assert key.colour == door.colour not in core
        assert room_of(key.cell) == puzzle.rooms[0] in door.rooms


@given(options(), st.integers(0, 2**63))
@example(ALL_COLOURS, 0)
def test_every_core_step_is_needed(asked, seed):
    """The core is the shortest solution, and without any one of its keys or doors there is no solution at all."""
    puzzle = generate(asked, seed)
    steps = [move for step in range(puzzle.core) for move in (("key", step), ("door", step))]
    assert plan(puzzle) == [*steps, ("goal", 0)]
    for step in range(puzzle.core):
        for kind in ("keys", "doors"):
            things = list(getattr(puzzle, kind))
            things[step] = replace(things[step], colour=0)  # a key that opens nothing, a door that nothing opens
            assert plan(replace(puzzle, **{kind: tuple(things)})) is None


def test_optional_parts_come_in_some_maps_and_not_in_others():
    found = [(len(p.keys) - p.core, len(p.doors) - p.core) for p in puzzles("dmlab-like", 200)]
    doors = Counter(doors - 1 - 1 - 2 for _, doors in found)  # less the trap, the red herring, the unopenable ones
    assert doors.keys() == {0, 1, 2} and min(doors.values()) > 30  # easy extra and openable: neither, one, both
    assert {keys for keys, _ in found} == {1, 2, 3}


def test_maps_without_a_place_for_a_further_door_go_without_or_say_so():
    """With four rooms in a ring any fourth door would be a way around a core step."""
    ring = PuzzleOptions(2, 2, core=3, extra_openable_doors=(0, 1))
    assert all(len(generate(ring, seed).doors) == 3 for seed in range(10))
    with pytest.raises(ValueError, match="no puzzle with .*extra_openable_doors=1"):
        generate(replace(ring, extra_openable_doors=1), 0)


@pytest.mark.parametrize("name", SOME)
def test_objects_never_stand_in_the_way(name):
    """Walking around all objects, one gets from the start to every object and door of the start room, and so on."""
    for puzzle in puzzles(name, 20):
        objects = [puzzle.goal, *(k.cell for k in puzzle.keys)]
        assert len(set(objects)) == len(objects)
        assert max(Counter(map(room_of, objects)).values()) <= MAX_PER_ROOM
        assert puzzle.start not in objects and room_of(puzzle.start) == puzzle.rooms[0]
        everything = Status(-1, 0, (1 << len(puzzle.doors)) - 1)
        for cell in [*objects, *(d.cell for d in puzzle.doors)]:
            if room_of(cell) is None or room_of(cell) in reach(puzzle, everything.opened, puzzle.rooms[0]):
                assert path(puzzle, everything, puzzle.start, cell) is not None


def test_a_trap_can_be_walked_into():
    """Spending a core key on the trap's door leaves no solution."""
    options = PuzzleOptions(3, 3, core=1, traps=1)
    for seed in range(20):
        puzzle = generate(options, seed)
        after = Status(held=-1, taken=0b1, opened=0b10)
        assert plan(puzzle, after) is None


def test_the_planner_sees_that_a_lost_key_is_lost():
    for puzzle in puzzles("3x3", 20):
        everything_taken = Status(held=-1, taken=0b111, opened=0)
        assert plan(puzzle, everything_taken) is None
        assert plan(puzzle, Status(0, 0b001, 0))[0] == ("door", 0)


def test_same_seed_same_puzzle_and_seeds_differ():
    assert puzzles("dmlab-like", 10) == puzzles("dmlab-like", 10)
    assert len(set(puzzles("dmlab-like", 30))) == 30


@pytest.mark.parametrize("name", SOME)
def test_maps_fit_their_place_and_close_their_rooms(name):
    for puzzle in puzzles(name, 20):
        text = textmap(puzzle)
        assert len(text) < most_text(SOME[name])
        outline = walls(puzzle)
        assert text.count(b"linedef{") == len(outline) + 4 + 3 * len(puzzle.doors)
        # A door takes a cell's side from both of its rooms, and its own cell has two walls.
        length = sum(abs(x1 - x0) + abs(y1 - y0) for (x0, y0), (x1, y1) in outline)
        assert length == 100 * 10 * len(puzzle.rooms)


def test_a_map_too_long_for_its_place_is_refused(tmp_path):
    file = Wad(tmp_path / "a.wad", 100)
    size = file.path.stat().st_size
    file.put(b"short")
    assert file.path.stat().st_size == size
    with pytest.raises(ValueError, match="101 bytes, but the file keeps 100"):
        file.put(b"x" * 101)


def test_the_wad_lists_its_lumps(tmp_path):
    data = Wad(tmp_path / "a.wad", 64).path.read_bytes()
    count, at = np.frombuffer(data[4:12], "<i4")
    entries = [data[at + 16 * i : at + 16 * i + 16] for i in range(count)]
    names = [entry[8:].rstrip(b"\0").decode() for entry in entries]
    assert data[:4] == b"PWAD" and at + 16 * count == len(data)
    assert names[:3] == ["DECORATE", "MAPINFO", "KEYCONF"]
    assert names[-4:] == ["MAP01", "TEXTMAP", "BEHAVIOR", "ENDMAP"]
    assert all(sum(np.frombuffer(entry[:8], "<i4")) <= at for entry in entries)


def test_scripts_are_listed_where_they_begin():
    """The directory of the bytecode: four scripts with their arguments, inside the code."""
    data = behavior()
    assert data[:4] == b"ACS\0"
    (at,) = np.frombuffer(data[4:8], "<i4")
    (count,) = np.frombuffer(data[at : at + 4], "<i4")
    table = np.frombuffer(data[at + 4 : at + 4 + 12 * count], "<i4").reshape(count, 3)
    assert table[:, [0, 2]].tolist() == [[1004, 0], [1, 2], [2, 3], [3, 0]]
    assert ((table[:, 1] >= 8) & (table[:, 1] < at)).all()
    assert data.endswith(b"-\0")


def test_pictures_are_png_files():
    image = pytest.importorskip("PIL.Image")
    import io

    picture = key("red")
    again = np.asarray(image.open(io.BytesIO(png(picture, (16, 44)))))
    assert np.array_equal(again, picture)


def test_maps_are_drawn_without_an_engine():
    puzzle = generate(PRESETS["3x3"], 0)
    start, later = draw_map(puzzle), draw_map(puzzle, Status(-1, 0b1, 0b1))
    assert start.shape == later.shape and (start != later).any()
    cells = sum(len(room_cells(room)) for room in puzzle.rooms)
    assert cells == 6 * len(puzzle.rooms)
    with pytest.raises(ValueError, match="at least 4"):
        draw_map(puzzle, pixels=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": 1, "columns": 1, "core": 1}, "use more rows or columns"),
        ({"rows": 2, "columns": 2, "core": 2, "traps": 2}, "2x2 grid has 4"),
        ({"rows": 2, "columns": 2, "core": 1, "unopenable_doors": 4}, "only 4 walls"),
        ({"core": 4, "red_herrings": 1, "unopenable_doors": 1}, "6 colours"),
        ({"core": 1, "useless_keys": 9}, "useless keys"),
        ({"easy_extra": 2}, "easy_extra must be an integer from 0 to 1"),
        ({"core": 4, "unopenable_doors": 1, "easy_extra": 1}, "6 colours"),
        ({"rows": 2, "columns": 2, "easy_extra": 1}, "1 easy extras"),
        ({"rows": 1, "columns": 5, "core": 1, "extra_openable_doors": 1}, "two rows and two columns"),
        ({"rows": 2, "columns": 2, "core": 1, "extra_openable_doors": 4}, "only 4 walls"),
        ({"core": 0}, "core must be an integer from 1"),
        ({"core": (3, 1)}, "least <= most"),
        ({"core": (1, 2, 3)}, "least, most"),
        ({"rows": 6}, "rows must be an integer from 1 to 5"),
    ],
)
def test_impossible_puzzles_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        PuzzleOptions(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"size": 84}, TypeError, "width, height"),
        ({"size": (0, 10)}, ValueError, "size"),
        ({"hud": 1}, TypeError, "hud"),
        ({"goal_reward": float("nan")}, ValueError, "goal_reward must be a finite number"),
        ({"max_steps": 0}, ValueError, "max_steps"),
        ({"layout_seed": -1}, ValueError, "layout_seed"),
        ({"frame_skip": 2.5}, TypeError, "frame_skip"),
    ],
)
def test_impossible_worlds_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        WorldOptions(**options)


def test_without_the_extra_importing_works_and_making_says_what_to_install():
    code = """
import sys
sys.modules["vizdoom"] = None
import gymnasium, secret_rl, secret_rl.envs.keys_doors
try:
    gymnasium.make("secret_rl/KeysDoors-v0")
except ModuleNotFoundError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert 'pip install "secret-rl[doom]"' in out.stdout


def _simple():
    return Puzzle(
        2, 1, ((0, 0), (1, 0)), (Key(1, (3, 1)),), (Door(1, ((0, 0), (1, 0)), (4, 2)),), (7, 1), (1, 2), angle=0, core=1
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rooms": ((0, 0), (0, 0))}, "each once"),
        ({"rooms": ((0, 0), (2, 0))}, "outside the grid"),
        ({"rooms": ((0, 0),)}, "two neighbouring rooms"),
        ({"doors": (Door(1, ((0, 0), (1, 0)), (4, 3)),)}, "in the wall between"),
        ({"doors": (Door(1, ((0, 0), (1, 0)), (4, 1)), Door(2, ((1, 0), (0, 0)), (4, 2)))}, "one door only"),
        ({"doors": (Door(6, ((0, 0), (1, 0)), (4, 2)),)}, "colour outside 1 to 5"),
        ({"keys": (Key(0, (3, 1)),)}, "colour outside 1 to 5"),
        ({"keys": (Key(1, (4, 2)),)}, "lies in no room"),
        ({"start": (7, 1)}, "cells of their own"),
        ({"keys": (Key(1, (3, 1)),) * 31}, "31 keys"),
    ],
)
def test_a_map_that_is_none_never_reaches_the_engine(change, words):
    textmap(_simple())
    with pytest.raises(ValueError, match=words):
        textmap(replace(_simple(), **change))


def test_counts_may_come_from_numpy_and_json():
    options = PuzzleOptions(core=np.int64(2), useless_keys=[0, 1])
    assert options == PuzzleOptions(core=2, useless_keys=(0, 1))
    assert generate(options, 0).core == 2
