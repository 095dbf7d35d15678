"""The file that the engine plays from: things, pictures, scripts, and one map whose text can be replaced."""

from pathlib import Path
from struct import pack

from secret_rl.envs.keys_doors import art
from secret_rl.envs.keys_doors.acs import behavior
from secret_rl.envs.keys_doors.puzzle import COLOURS
from secret_rl.envs.keys_doors.textmap import FENCE, FLOOR, GOAL_TYPE, KEY_TYPE, PIT, SKY

MAP = "MAP01"

_PLAYER = """
actor KDPlayer : PlayerPawn
{
  Radius 16
  Height 56
  Player.DisplayName "Walker"
  States
  {
  Spawn:
    PLAY A -1
    Stop
  See:
    PLAY A 4
    Loop
  }
}
"""
# A pick-up counts only if some action of its Pickup state succeeds; this one changes nothing.
_THING = """
actor {name} : CustomInventory {number}
{{
  Radius 24
  Height 48
  Inventory.PickupMessage ""
  Inventory.PickupSound ""
  +INVENTORY.NOSCREENFLASH
  States
  {{
  Spawn:
    {sprite} A -1
    Stop
  Pickup:
    TNT1 A 0 A_SetTranslucent(1)
    Stop
  }}
}}
"""
_MAPINFO = f"""
map {MAP} "Keys and doors" {{ sky1 = "{SKY}", 0 }}
"""
_KEYCONF = "clearplayerclasses\naddplayerclass KDPlayer\n"


class Wad:
    """A WAD file with one map of up to ``capacity`` bytes of text, which ``put`` replaces in place.

    Replacing the text in the file that a running engine has open takes a tenth of the time of a new engine.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.path, self.capacity = path, capacity
        lumps = [
            *_definitions(),
            *_sprites(),
            *_textures(),
            (MAP, b""),
            ("TEXTMAP", b" " * capacity),
            ("BEHAVIOR", behavior()),
            ("ENDMAP", b""),
        ]
        directory, data = b"", b""
        for name, lump in lumps:
            if name == "TEXTMAP":
                self._offset = 12 + len(data)
            directory += pack("<2i8s", 12 + len(data), len(lump), name.encode("ascii"))
            data += lump
        path.write_bytes(b"PWAD" + pack("<2i", len(lumps), 12 + len(data)) + data + directory)

    def put(self, textmap: bytes) -> None:
        """Make ``textmap`` the text of the map; what is left of its place is blank."""
        if len(textmap) > self.capacity:
            raise ValueError(
                f"a map of {len(textmap)} bytes, but the file keeps {self.capacity} for it: make it with more capacity"
            )
        with self.path.open("r+b") as file:
            file.seek(self._offset)
            file.write(textmap.ljust(self.capacity))


def _definitions() -> list[tuple[str, bytes]]:
    things = [(f"KDKey{i}", KEY_TYPE + i, f"KDK{i}") for i in range(1, len(COLOURS) + 1)]
    things.append(("KDGoal", GOAL_TYPE, "KDGO"))
    actors = [_THING.format(name=name, number=number, sprite=sprite) for name, number, sprite in things]
    texts = (("DECORATE", _PLAYER + "".join(actors)), ("MAPINFO", _MAPINFO), ("KEYCONF", _KEYCONF))
    return [(name, text.encode("ascii")) for name, text in texts]


def _sprites() -> list[tuple[str, bytes]]:
    keys = [(f"KDK{i}A0", art.png(art.key(colour), (16, 44))) for i, colour in enumerate(COLOURS, 1)]
    return [("S_START", b""), *keys, ("KDGOA0", art.png(art.goal(), (20, 58))), ("S_END", b"")]


def _textures() -> list[tuple[str, bytes]]:
    fences = [(f"{FENCE}{i}", art.png(art.fence(colour))) for i, colour in enumerate(COLOURS, 1)]
    plain = [(FLOOR, art.png(art.floor())), (PIT, art.png(art.pit())), (SKY, art.png(art.sky()))]
    return [("TX_START", b""), *plain, *fences, ("TX_END", b"")]
