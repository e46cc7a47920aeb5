"""What is known of a commit from one attempt to the next."""

from __future__ import annotations

from dataclasses import dataclass

from deltasql.phases import reached


@dataclass(slots=True)
class Attempt:
    """The attempts to ratify one transaction."""

    careful: bool
    intents: int
    number: int = 0
    sent: bool = False
    was_sent: bool = False
    """In this attempt or in one before it."""
    is_unknown: bool = False
    duplicates: int = 0
    timeouts: int = 0

    def send(self) -> None:
        """From now on the database may commit without our knowing."""
        self.sent = self.was_sent = True
        reached("sending")
