"""The status of a running federation, in one small file that is replaced after every round.

It is for people and monitors (``mabrfl federation STATE list``, ``mabrfl serve STATE``); no run depends on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mabrfl.errors import StateError
from mabrfl.recording.atomic import replace_file
from mabrfl.recording.encoding import canonical_json, parse_strictly
from mabrfl.recording.files import read_bytes
from mabrfl.recording.folder import explained, lock, shown
from mabrfl.recording.record import plain
from mabrfl.recording.regular import open_regular

STATUS, LOCK = "status.json", "lock"
VERSION = 1

Severity = Literal["info", "warning", "critical"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Alert(_Part):
    """Something that an operator should look at.

    Attributes
    ----------
    kind
        One word for programs, such as ``most-rejected``.
    severity
        ``critical`` needs a person now, ``warning`` soon; ``info`` is for the record.
    message
        One sentence.
    round
        The round it belongs to.
    """

    kind: str
    severity: Severity
    message: str
    round: int


class ClientStatus(_Part):
    """One client: its reputation, the decisions about it, and the last verdict on it.

    ``name`` is the name under which the node is registered with Flower, if any.
    """

    id: int | str
    name: str = ""
    benign: float | None = None
    malicious: float | None = None
    banned: bool = False
    pinned: bool = False
    round: int = 0
    verdict: str = ""
    reason: str = ""

    @property
    def trust(self) -> float | None:
        """B / (B + M), the probability that it is benign; None if the defense keeps no reputation."""
        if self.benign is None or self.malicious is None or not self.benign + self.malicious > 0:
            return None
        return self.benign / (self.benign + self.malicious)


class FederationStatus(_Part):
    """A federation after its last finished round.

    Attributes
    ----------
    round, time
        The last finished round, and when it was finished, in seconds since 1970.
    figures
        The numbers of that round; the names are those in Flower's MetricRecord.
    metrics
        The newest evaluation, by the server or else by clients.
    seconds
        The time of each stage of that round.
    totals
        Replies by verdict and reason, over all rounds since the file was first written.
    alerts, alert_totals
        The alerts of that round, and the number of each kind so far.
    clients
        Every client known.
    """

    version: int = VERSION
    round: int
    time: float
    figures: dict[str, float] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    totals: dict[str, int] = Field(default_factory=dict)
    alerts: list[Alert] = Field(default_factory=list)
    alert_totals: dict[str, int] = Field(default_factory=dict)
    clients: list[ClientStatus] = Field(default_factory=list)


def strategy_is_running(folder: Path) -> bool:
    """Whether a strategy is using the folder."""
    try:
        with open_regular(folder / LOCK) as file:
            return not lock(file)
    except OSError:
        return False


def write_status(folder: Path, status: FederationStatus) -> None:
    """Replace the status file in a strategy's folder."""
    with explained(folder):
        replace_file(folder / STATUS, [canonical_json(plain(status.model_dump(mode="json")))])


def read_status(folder: Path) -> FederationStatus | None:
    """Return the status in a strategy's folder; None if there is none yet.

    Raises
    ------
    StateError
        If the file is damaged, or of a newer version.
    """
    file = folder / STATUS
    if not file.exists():
        return None
    document: Any = None
    try:
        document = parse_strictly(read_bytes(file))
        status = FederationStatus.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StateError(f"{shown(file)} is not the status of a federation: {place}: {first['msg']}") from error
    except StateError as error:
        raise StateError(f"{shown(file)} cannot be used: {error}") from error
    if status.version != VERSION:
        raise StateError(f"{shown(file)} is in version {status.version}; this program reads {VERSION}")
    return status
