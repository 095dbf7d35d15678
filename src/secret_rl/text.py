"""Text that comes from files, made fit for terminals and pages."""


def printable(text: str) -> str:
    """Text with a mark in place of what a terminal would obey or cannot show; lines and tabs stay."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
