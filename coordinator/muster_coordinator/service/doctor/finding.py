"""What the doctor says: which row breaks which rule."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that breaks one rule."""

    rule: str  # number of the invariant, as in `tests/support/invariants.py`
    subject: str  # id of the row, or of the rows' owner
    message: str

    def __str__(self) -> str:
        """Write it in one line, the rule first."""
        return f"{self.rule} {self.subject} {self.message}"
