"""The base of the rules that expect f malicious clients among n, and need n > 2f."""

from __future__ import annotations

from dataclasses import dataclass

from mabrfl.checks import check_whole, quorum
from mabrfl.updates import Cohort


@dataclass(frozen=True, kw_only=True)
class HonestMajority:
    """A rule with a bound on the malicious clients of the whole population."""

    num_malicious: int
    strict: bool = False

    def __post_init__(self) -> None:
        check_whole(f"{type(self).__name__} num_malicious", self.num_malicious)

    def expected(self, cohort: Cohort, rule: str) -> tuple[int, tuple[str, ...]]:
        """Return f, this cohort's share of the bound, and the event if n > 2f does not hold.

        Raises
        ------
        QuorumError
            Instead of returning the event, if ``strict``.
        """
        events = quorum(rule, "n > 2f", cohort, self.num_malicious, excess=1, strict=self.strict)
        return cohort.expected_malicious(self.num_malicious), events
