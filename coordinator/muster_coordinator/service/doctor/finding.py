"""What the doctor says: which row breaks which rule."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that breaks one rule."""

    rule: str  # of `RULES`
    subject: str  # id of the row, or of the rows' owner
    message: str

    def __str__(self) -> str:
        """Write it in one line, the rule first."""
        return f"{self.rule} {self.subject} {self.message}"


RULES: Final = {
    "I01": "no atom has two bookings at one time",
    "I02": "a gang is whole, on distinct nodes, in one window, and as it was booked",
    "I03": "nothing is booked for nobody, and what is pending or ended has no members",
    "I04": "active means that every member was bound by its own node, after the start",
    "I05": "a booking is of atoms that its node has or had",
    "I06": "members are in their reservation's pool",
    "I09": "no atom is handed out again before its release is confirmed",
    "I16": "no member is of a later generation than its reservation",
    "I23": "quota is charged once, as long as nodes are held or owed, and given back once",
    "I24": "each node's usage is recorded once, from active to release",
    "I28": "every change has its one event, in order",
    "guards": "the database itself refuses two bookings of one atom",
}
"""Every rule, in words. Source: design, section 15; reliability facts, section 2."""
