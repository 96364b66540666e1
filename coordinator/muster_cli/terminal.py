"""What may reach a terminal."""


def printable(text: str) -> str:
    """Replace what would steer a terminal: names come from tenants and hosts, who have no say over it."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
