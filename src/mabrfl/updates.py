"""The data of a round at the server: updates, the input and output of selectors and rules, the outcome."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mabrfl import vectors
from mabrfl.errors import ConfigError
from mabrfl.explaining import explain
from mabrfl.layout import Block, Layout, join
from mabrfl.rng import ClientId, generator, uniforms
from mabrfl.vectors.disk_rows import write_rows

Floats = NDArray[np.floating[Any]]
Reason = str
"""Why a client was accepted or rejected: one of :data:`REASONS`, or a word of a user's own rule."""
REASONS = ("accepted", "sybil", "outlier", "malformed")
"""The reasons of this package; ``malformed`` is given by intake, before any rule."""
Evidence = Mapping[str, Any]

MAX_ID_LENGTH = 1024
MAX_ID_BITS = 256


def as_client_id(value: Any) -> ClientId:
    """Return an id as a plain ``int`` or ``str`` of reasonable length; refuse anything else."""
    if isinstance(value, str):
        if len(value) > MAX_ID_LENGTH:
            raise ValueError(f"client ids have at most {MAX_ID_LENGTH} characters; got {len(value)}")
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if number.bit_length() > MAX_ID_BITS:
            raise ValueError(f"client ids have at most {MAX_ID_BITS} bits; got {number.bit_length()}")
        return number
    raise TypeError(f"client ids must be int or str; got {value!r} ({type(value).__name__})")


def canonical(ids: Iterable[ClientId]) -> list[ClientId]:
    """Return ids in canonical order: numbers by value, then strings by code point.

    Examples
    --------
    >>> canonical(["b", 10, "a", 9])
    [9, 10, 'a', 'b']
    """
    return sorted(ids, key=lambda client: (isinstance(client, str), client))


def proportional(cohort: int, population: int, num_malicious: int) -> int:
    """Return how many of a cohort's clients are malicious if the population's share holds, rounded up."""
    return math.ceil(num_malicious * cohort / max(population, cohort, 1))


def expected_malicious(cohort: int, population: int, num_malicious: int) -> int:
    """Return :func:`proportional`, kept below one half of the cohort.

    Examples
    --------
    >>> [expected_malicious(n, 50, 15) for n in (50, 25, 3, 1)]
    [15, 8, 1, 0]
    """
    return max(0, min(proportional(cohort, population, num_malicious), (cohort - 1) // 2))


@dataclass(frozen=True)
class Updates:
    """The updates of one round as clients sent them: local weights minus global weights, a row each.

    Parameters
    ----------
    ids
        One ``int`` or ``str`` per row. They name the client for good: reputation is kept under them.
    matrix
        An ``(n, d)`` array (a ``np.memmap`` if it is larger than memory, see also :meth:`on_disk`), whose precision is
        kept if it is single or double; or a sequence of n flat
        arrays as they came from the clients, which become single precision (they may be malformed:
        intake judges each row by itself and quarantines the bad ones).
    num_examples
        Local training examples per client, as reported by the client; ones if left out.
    dimension
        The length the server expects. By default the width of ``matrix``; for a sequence what most
        clients sent in the first round, so a server that takes rows as they come should declare it.
    layout
        The layers of the model in the order of a row, for rules that look at layers. Its size must be that of the
        matrix; for a sequence it is the ``dimension``, if that is left out.
    global_weights
        The global model that the clients started from, for rules that look at models.
    root_update
        The update of the server's own training on its root data, for rules that compare with it.
    """

    ids: Sequence[ClientId]
    matrix: Floats | Sequence[ArrayLike]
    num_examples: Sequence[float] | NDArray[Any] | None = None
    dimension: int | None = None
    layout: Layout | None = None
    global_weights: Floats | None = None
    root_update: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", [as_client_id(client) for client in self.ids])
        if len(self.ids) != len(self.matrix):
            raise ValueError(f"one id per row: got {len(self.ids)} ids for {len(self.matrix)} rows")
        if self.num_examples is not None and len(self.num_examples) != len(self.ids):
            raise ValueError(f"one count per row: got {len(self.num_examples)} counts for {len(self.ids)} rows")
        if self.layout is not None:
            self._check_layout(self.layout.size)
        for name in ("global_weights", "root_update"):
            if (vector := getattr(self, name)) is not None:
                self._check_vector(name, vector)

    @classmethod
    def on_disk(
        cls,
        replies: Iterable[tuple[ClientId, ArrayLike, float]],
        *,
        dimension: int,
        folder: str | PathLike[str] | None = None,
        layout: Layout | None = None,
    ) -> Updates:
        """Take clients' updates one by one, as they arrive, and keep them on disk: they may be larger than memory.

        Parameters
        ----------
        replies
            Id, update and number of examples of each client. One update at a time is in memory.
        dimension
            The length of an update. One that is no flat array of so many floating-point numbers becomes a row of NaN,
            which intake quarantines.
        folder
            Where the file is, without a name; it is gone with the updates. The system's folder for temporary files if
            left out, which may itself be in memory.
        layout
            The layers of the model.

        Examples
        --------
        >>> sent = Updates.on_disk([("ada", np.ones(3), 10), ("bob", np.zeros(3), 20)], dimension=3)
        >>> sent.ids, sent.matrix.shape, sent.num_examples
        (['ada', 'bob'], (2, 3), [10, 20])
        """
        ids: list[ClientId] = []
        counts: list[float] = []

        def rows() -> Iterator[ArrayLike]:
            for client, row, examples in replies:
                ids.append(client)
                counts.append(examples)
                yield row

        matrix = write_rows(rows(), dimension, None if folder is None else Path(folder))
        return cls(ids, matrix, counts, layout=layout)

    @property
    def _width(self) -> int | None:
        return self.matrix.shape[1] if isinstance(self.matrix, np.ndarray) and self.matrix.ndim == 2 else None

    def _check_vector(self, name: str, vector: Any) -> None:
        width = self._width if self.dimension is None else self.dimension
        if np.shape(vector) != (width,) and width is not None:
            raise ConfigError(f"{name} must be a vector of {width} numbers, as the updates are; got {np.shape(vector)}")

    def _check_layout(self, size: int) -> None:
        width = self._width
        if width is None and self.dimension is None:
            object.__setattr__(self, "dimension", size)
        for thing, length in (("the matrix", width), ("dimension", self.dimension)):
            if length not in (None, size):
                raise ConfigError(f"the layout has {size} numbers, {thing} {length}; they must be the same")


@dataclass(frozen=True)
class Candidates:
    """The input of a selector: the clients that could take part, and the beliefs about each."""

    ids: tuple[ClientId, ...]
    benign: NDArray[np.float64]
    malicious: NDArray[np.float64]
    round: int
    seed: int = 0

    def uniforms(self, purpose: str) -> NDArray[np.float64]:
        """One uniform number per candidate, each independent of who else is a candidate."""
        return uniforms(self.seed, purpose, self.round, self.ids)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a generator named after the purpose and the round."""
        return generator(self.seed, purpose, self.round)


@dataclass(frozen=True)
class Selection:
    """The output of a selector, if it has events to report; a plain list of ids will do as well."""

    ids: Sequence[ClientId]
    events: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """The input of a rule: the well-formed updates of one round, in canonical order of their ids.

    Attributes
    ----------
    ids
        The n clients.
    matrix
        Their updates, ``(n, d)``, read-only.
    norms
        Euclidean norm of each row, float64.
    num_examples
        Reported example counts, float64.
    round
        The round's number, from 1.
    population
        How many clients could have been selected (K).
    seed
        Root of the named random streams.
    reputation
        ``{id: (B, M)}`` of every client known to the defense, as before this round.
    layout
        The layers of the model, if the server knows them.
    global_weights, root_update
        See :class:`Updates`; None if the server does not pass them on.
    """

    ids: tuple[ClientId, ...]
    matrix: Floats
    norms: NDArray[np.float64]
    num_examples: NDArray[np.float64]
    round: int
    population: int
    seed: int = 0
    reputation: Mapping[ClientId, tuple[float, float]] = field(default_factory=dict)
    layout: Layout | None = None
    global_weights: Floats | None = None
    root_update: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """The ``(n, n)`` matrix of inner products, float64."""
        vars(self)["_multiplied"] = ()
        return vectors.gram(self.matrix, self.norms)

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        """The ``(n, n)`` matrix of cosine similarities."""
        return vectors.cosines(self.gram)

    @cached_property
    def squared_distances(self) -> NDArray[np.float64]:
        """The ``(n, n)`` matrix of squared Euclidean distances."""
        return vectors.squared_distances(self.distance_gram)

    @cached_property
    def distance_gram(self) -> NDArray[np.float64]:
        """Inner products to take distances from: ``gram``, unless half of the updates nearly agree with one of them.

        Then they are the inner products of the updates less that one. All distances are the same, and none is the
        difference of numbers that are equal but for rounding.
        """
        common = vectors.row_nearly_all_share(self.gram, self.matrix.dtype)
        return self.gram if common is None else vectors.difference_gram(self.matrix, common)

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """The Gram matrix, cosines and norms of each layer, by its name, in order of the layout.

        All are computed when first asked for, in one pass with ``gram``, whose bytes are the same with and
        without it. The layers' Gram matrices add up to ``gram`` up to rounding; see :func:`vectors.block_grams`.

        Raises
        ------
        ConfigError
            If the updates came without a layout.
        """
        if self.layout is None:
            raise ConfigError("cohort.blocks needs the layers of the model: Updates(ids, matrix, layout=...)")
        gram, blocks = self.layout.blocks(self.matrix, self.norms)
        vars(self).setdefault("gram", gram)
        return blocks

    def grams(self, blocks: Sequence[Sequence[slice]]) -> list[NDArray[np.float64]]:
        """Return the Gram matrix of each of these blocks of columns, in one pass with ``gram``."""
        known, shares = vars(self).pop("_shares", (None, []))
        if known == blocks:
            return list(shares)
        vars(self)["_multiplied"] = blocks
        gram, shares = vectors.block_grams(self.matrix, blocks, self.norms)
        vars(self).setdefault("gram", gram)
        return shares

    def block(self, *layers: str) -> Block:
        """Return several layers as one block: the sum of their Gram matrices.

        Parameters
        ----------
        layers
            Names of layers (keys of ``blocks``), each once.
        """
        return join(self.blocks, layers)

    def trust(self, ids: Sequence[ClientId]) -> NDArray[np.float64]:
        """Return B / (B + M) of these clients: how likely each is benign; 1/2 for unknown ones."""
        counts = np.array([self.reputation.get(client, (1.0, 1.0)) for client in ids]).reshape(-1, 2)
        return np.asarray(counts[:, 0] / counts.sum(axis=1))

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a generator named after the purpose and the round."""
        return generator(self.seed, purpose, self.round)

    def proportional(self, num_malicious: int) -> int:
        """Return this cohort's share of ``num_malicious`` malicious clients of the population, rounded up."""
        return proportional(len(self), self.population, num_malicious)

    def expected_malicious(self, num_malicious: int) -> int:
        """Return how many clients of this cohort to expect to be malicious if ``num_malicious`` of all clients are.

        The share is scaled to the cohort's size, rounded up, and kept below one half.
        """
        return max(0, min(self.proportional(num_malicious), (len(self) - 1) // 2))


@dataclass(frozen=True)
class Decision:
    """The output of a rule: its decision about a cohort of n clients.

    Give either ``weights`` (the step is ``weights @ rows``) or, for rules that are no weighted sum,
    the ``step`` itself. Everything else has a sensible default.

    Attributes
    ----------
    weights
        One weight per row of ``rows``.
    rows
        The rows that the weights apply to; the cohort's own matrix if left out.
    step
        The ``(d,)`` step, for coordinate-wise rules.
    reasons
        ``"accepted"``, ``"sybil"``, ``"outlier"`` or a word of the rule's own per client; all accepted if left
        out. Every word but ``"accepted"`` is a rejection: the rule takes the client to be malicious. A client
        that is merely not used is accepted.
    evidence
        One mapping of plain numbers and strings per client: why.
    credit
        How much each verdict counts for its client's reputation, from 0 (not at all) to 1, as all do
        if left out. Negative: on suspicion, the update is used and yet counts against its sender.
    events
        Events that concern the round as a whole ("no-survivors", "equal-clusters", ...).
    facts
        Plain numbers about the round ("threshold", "cluster_cosine", ...), for the record.
    """

    weights: NDArray[Any] | None = None
    rows: Floats | None = None
    step: Floats | None = None
    reasons: Sequence[Reason] | None = None
    evidence: Sequence[Evidence] | None = None
    credit: NDArray[np.float64] | Sequence[float] | None = None
    events: tuple[str, ...] = ()
    facts: Evidence = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The result for one client: accepted or not, why, and how much it counts for its reputation (-1 to 1)."""

    accepted: bool
    reason: Reason
    evidence: Evidence = field(default_factory=dict)
    credit: float = 1.0

    def explain(self, facts: Evidence | None = None) -> str:
        """Return why, in sentences with the numbers and what they are compared with.

        Parameters
        ----------
        facts
            Of the round (``outcome.facts``): some rules have thresholds there. See also :meth:`Outcome.explain`.

        Examples
        --------
        >>> print(Verdict(True, "accepted", {"share": 0.052}).explain())
        Accepted: it makes up 5.2 % of the step.
        """
        return explain(self.reason, self.evidence, facts, credit=self.credit)

    @property
    def blamed(self) -> bool:
        """Whether this costs reputation: most rejections do, and so may an update that was used for its copies."""
        return self.credit < 0 or (not self.accepted and self.credit > 0)


def explain_among(
    client: ClientId,
    verdicts: Mapping[ClientId, Verdict],
    facts: Evidence | None = None,
    options: Evidence | None = None,
) -> str:
    """Return why a client was accepted or rejected, beside the others of the round; see :mod:`mabrfl.explaining`.

    Raises
    ------
    ValueError
        If there is no verdict on this client.
    """
    if client not in verdicts:
        raise ValueError(f"there is no verdict on client {client!r} in this round; there are {len(verdicts)} others")
    verdict = verdicts[client]
    accepted = [other.evidence for other in verdicts.values() if other.accepted]
    return explain(verdict.reason, verdict.evidence, facts, credit=verdict.credit, options=options, accepted=accepted)


@dataclass(frozen=True)
class Outcome:
    """The result of one round at the server.

    Attributes
    ----------
    step
        ``(d,)`` array: add it to the global weights. Always finite; zeros if nobody survived.
    verdicts
        One :class:`Verdict` per client that sent something.
    events
        Events that concern the round as a whole ("no-survivors", "random-subset", ...).
    facts
        Plain numbers about the round, for the record.
    """

    step: Floats
    verdicts: Mapping[ClientId, Verdict]
    round: int
    events: tuple[str, ...] = ()
    facts: Evidence = field(default_factory=dict)

    def explain(self, client: ClientId) -> str:
        """Return why a client was accepted or rejected, in sentences; its numbers are compared with the others'."""
        return explain_among(client, self.verdicts, self.facts)

    @property
    def accepted(self) -> list[ClientId]:
        """Ids of the accepted clients, in canonical order."""
        return [client for client, verdict in self.verdicts.items() if verdict.accepted]

    def rejected(self, reason: Reason) -> list[ClientId]:
        """Ids of the clients rejected for this reason, in canonical order."""
        return [client for client, verdict in self.verdicts.items() if verdict.reason == reason]
