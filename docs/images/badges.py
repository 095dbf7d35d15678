"""The badges of the README, made of what the repository says of itself: ``python -m docs.images.badges``."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

from secret_rl.atomic import replace_text

ROOT = Path(__file__).parent.parent.parent


def facts() -> dict[str, tuple[str, str]]:
    """Name of a badge to its two halves."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    pythons = jobs["versions"]["strategy"]["matrix"]["python"]
    return {
        "python": ("python", " | ".join(pythons)),
        "licence": ("licence", project["project"]["license"]),
        "ci": ("CI", "GitHub Actions"),
        "types": ("types", "mypy, strict" if project["tool"]["mypy"]["strict"] else "mypy"),
    }


def badge(label: str, value: str) -> str:
    """A picture of what is said of something."""
    left, right = (round(6.6 * len(words)) + 14 for words in (label, value))
    texts = "".join(
        f'<text x="{x:g}" y="14" text-anchor="middle">{words}</text>'
        for x, words in ((left / 2, label), (left + right / 2, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
        f'<title>{label}: {value}</title><rect width="{left + right}" height="20" rx="3" fill="#46505c"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1 -3 3h-{right - 3}z" fill="#1f6feb"/>'
        f'<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">{texts}</g></svg>\n'
    )


def main() -> None:
    """Write all of them."""
    for name, halves in facts().items():
        replace_text(Path(__file__).parent / f"badge-{name}.svg", badge(*halves))


if __name__ == "__main__":
    main()
