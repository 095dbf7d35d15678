"""The file that the engine plays from: a broken one would crash the engine, and Python with it."""

import io

import numpy as np
import pytest

from secret_rl.envs.keys_doors import PRESETS, PuzzleOptions, generate
from secret_rl.envs.keys_doors.wad import Wad, key_picture, most_text, png, textmap, walls

FULL = PuzzleOptions(4, 4, core=3, traps=3, red_herrings=1, unopenable_doors=4)


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


def test_a_map_too_long_for_its_place_is_refused(tmp_path):
    file = Wad(tmp_path / "a.wad", 100)
    size = file.path.stat().st_size
    file.put(b"short")
    assert file.path.stat().st_size == size
    with pytest.raises(ValueError, match="101 bytes, but the file keeps 100"):
        file.put(b"x" * 101)


def test_pictures_are_png_files():
    image = pytest.importorskip("PIL.Image")
    picture = key_picture("red")
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png(picture, (16, 44))))), picture)
