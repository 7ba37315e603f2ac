"""The memory of momenta: one vector per client ever judged, folded in place (Eq. 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.errors import StateError
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, as_client_id
from mabrfl.vectors.disk_rows import copy_on_disk

_NEVER = -1
_PRECISIONS = (np.float16, np.float32, np.float64)
_MATRIX = 2
_LARGEST = 15
"""Exponent of the largest norm of a row in half precision, whose largest number is 65504."""
_SHORTEST = 1e-3
"""Of a past that an update can be compared with; below it, rounding would decide."""


class MomentumMemory:
    r"""Momenta :math:`m_t^k = g_t^k + \lambda^{t - t_k} m_{t_k}^k`, with :math:`m^k = 0` at first (Eq. 5).

    Rows are kept for clients seen only, in the precision of their updates: 4 d bytes each.

    Parameters
    ----------
    folder
        Keep the rows in a file without a name in this folder, not in memory. The results are the same, bit for bit.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._lent = False
        self._row: dict[ClientId, int] = {}
        self._matrix: Floats = np.zeros((0, 0), dtype=np.float32)
        self._norms = np.zeros(0)
        self._scales = np.zeros(0)  # what rows are to be multiplied by
        self._computed = np.zeros(0, dtype=np.int64)
        self._selected = np.zeros(0, dtype=np.int64)

    @property
    def matrix(self) -> Floats:
        """All rows as they are kept, read-only, some of them unused; :meth:`rows` says which belongs to whom."""
        view = self._matrix.view()
        view.flags.writeable = False
        return view

    def rows(self, ids: Sequence[ClientId], like: Floats) -> NDArray[np.intp]:
        """Return the row of each client; make room for those not seen before."""
        if self._row and self._matrix.shape[1] != like.shape[1]:
            raise StateError(f"updates have length {like.shape[1]}, the remembered momenta {self._matrix.shape[1]}")
        for client in ids:
            self._row.setdefault(client, len(self._row))
        self._reserve(len(self._row), like)
        return np.array([self._row[client] for client in ids], dtype=np.intp)

    def _reserve(self, needed: int, like: Floats) -> None:
        have = len(self._matrix)
        if needed <= have:
            return
        room = max(needed, have + have // 2)
        if not have:
            self._matrix = np.zeros((0, like.shape[1]), dtype=self._kept_as(like.dtype))
        self._matrix = self._copied(range(have), room)
        self._norms = np.concatenate([self._norms, np.zeros(room - have)])
        self._scales = np.concatenate([self._scales, np.ones(room - have)])
        self._computed = np.concatenate([self._computed, np.full(room - have, _NEVER)])
        self._selected = np.concatenate([self._selected, np.full(room - have, _NEVER)])

    def clear(self) -> None:
        """Forget everything. Views of :attr:`matrix` that were taken before stay as they are."""
        self._row = {}
        self._matrix = np.zeros((0, 0), dtype=np.float32)
        self._norms, self._scales = np.zeros(0), np.zeros(0)
        self._computed, self._selected = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def _kept_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the precision in which updates of this precision are kept."""
        return dtype

    def _room(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what momenta are multiplied by where they are kept, if their norms are up to these bounds."""
        return np.ones(len(bounds))

    def _copied(self, rows: Sequence[int] | NDArray[np.intp], room: int | None = None) -> Floats:
        """Return a copy of these rows, with room for more, where the memory keeps its rows."""
        if self.folder is not None:
            return copy_on_disk(self._matrix, rows, room=room, folder=self.folder)
        copy = np.zeros((len(rows) if room is None else room, self._matrix.shape[1]), dtype=self._matrix.dtype)
        copy[: len(rows)] = self._matrix[rows] if isinstance(rows, np.ndarray) else self._matrix[: len(rows)]
        return copy

    def fold(
        self,
        rows: NDArray[np.intp],
        updates: Floats,
        take: NDArray[np.intp],
        norms: NDArray[np.float64],
        *,
        round_number: int,
        history: float,
        age: str,
    ) -> NDArray[np.float64]:
        """Fold ``updates[take]`` into ``rows``; return the Gram matrix of the new momenta."""
        since = self._selected[rows] if age == "selected" else self._computed[rows]
        with np.errstate(under="ignore"):
            decay = np.where(since == _NEVER, 0.0, float(history) ** np.maximum(round_number - since, 0))
        # A past so large that the sum could not be represented is forgotten.
        past = decay * self._norms[rows]
        decay[norms[take] + past > float(np.finfo(updates.dtype).max)] = 0.0
        bounds = norms[take] + decay * self._norms[rows]
        room = self._room(bounds)
        fold = vectors.folding(self._matrix, rows, updates, take, decay=decay * self._scales[rows] * room, gain=room)
        self._scales[rows] = 1 / room
        gram = vectors.gram(self._matrix, bounds * room, rows, before=fold) / room[:, None] / room
        self._norms[rows] = np.sqrt(np.clip(np.diag(gram), 0, None))
        self._computed[rows] = round_number
        return gram

    def fold_unit(
        self,
        rows: NDArray[np.intp],
        updates: Floats,
        norms: NDArray[np.float64],
        panel: NDArray[np.intp],
        *,
        round_number: int,
        history: float,
        blocks: Sequence[Sequence[slice]] = (),
    ) -> tuple[NDArray[np.float64], list[NDArray[np.float64]], NDArray[np.float64]]:
        r"""Fold updates of length 1 into ``rows``: :math:`m_t^k = g_t^k / ||g_t^k|| + \lambda m_{t_k}^k`.

        Unlike in Eq. 5, what a client sent last does not fade while it is not selected: a suspect is
        seldom selected, and its direction over many rounds is what gives it away.

        Parameters
        ----------
        rows, updates, norms
            Where, what, and the lengths of what.
        panel
            Rows of whose momenta the Gram matrix is wanted; ``rows`` must be among them.
        round_number, history
            t and lambda.
        blocks
            Blocks of columns of which the Gram matrix is wanted as well.

        Returns
        -------
        gram, shares, consistency
            The Gram matrix of the panel's momenta, as they are kept in :attr:`matrix`, and its share over each block;
            and the cosine between each update and the momentum that its sender had before, NaN for those without one.
        """
        since, before = self._computed[rows], self._norms[rows]
        decay = np.where(since == _NEVER, 0.0, float(history))
        self._norms[rows] = 1 + decay * before  # an upper bound, until they are measured
        room = self._room(self._norms[rows])
        fold = vectors.folding(self._matrix, rows, updates, decay=decay * self._scales[rows] * room, gain=room / norms)
        self._scales[rows] = 1 / room
        bounds = self._norms[panel] / self._scales[panel]
        gram, shares = vectors.block_grams(self._matrix, blocks, bounds, panel, before=fold)
        self._norms[panel] = np.sqrt(np.clip(np.diag(gram), 0, None)) * self._scales[panel]
        self._computed[rows] = round_number
        past = decay * before
        with np.errstate(divide="ignore", invalid="ignore"):
            consistency = (self._norms[rows] ** 2 - 1 - past**2) / (2 * past)
        return gram, shares, np.where(past > _SHORTEST, np.clip(consistency, -1, 1), np.nan)

    def recent(self, rows: NDArray[np.intp], since: int) -> NDArray[np.intp]:
        """Return the other rows whose momenta are from round ``since`` or later, the latest first."""
        used = np.arange(len(self._row))
        others = np.setdiff1d(used[self._computed[used] >= since], rows)
        order = np.lexsort((others, -self._computed[others]))
        return np.asarray(others[order], dtype=np.intp)

    def forget(self, gone: Callable[[ClientId], bool], before: int) -> None:
        """Give up the rows of clients that are gone and were judged last before a round, once they are many."""
        kept = [client for client, row in self._row.items() if self._computed[row] >= before or not gone(client)]
        if len(self._row) - len(kept) <= len(self._row) // 4:
            return
        rows = np.array([self._row[client] for client in kept], dtype=np.intp)
        self._matrix, self._norms, self._scales = self._copied(rows), self._norms[rows], self._scales[rows]
        self._computed, self._selected = self._computed[rows], self._selected[rows]
        self._row = {client: k for k, client in enumerate(kept)}

    def clients(self) -> list[ClientId]:
        """Return whose momentum each row is."""
        return list(self._row)

    def mark_selected(self, rows: NDArray[np.intp], round_number: int) -> None:
        """Note that these clients took part in this round."""
        self._selected[rows] = round_number

    def normalise(self, rows: NDArray[np.intp]) -> None:
        """Overwrite these momenta by their unit vectors, as the released code does.

        The numbers stay as they are; only the factor they are to be multiplied by changes.
        """
        norms = self._norms[rows]
        self._scales[rows] *= np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        self._norms[rows] = (norms > 0).astype(np.float64)

    def unit_weights(self, rows: NDArray[np.intp], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return weights w with ``w @ matrix`` = the sum of these unit momenta times their coefficients."""
        norms = self._norms[rows]
        weights = np.zeros(len(self._matrix))
        inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
        weights[rows] = coefficients * self._scales[rows] * inverse
        return weights

    def snapshot(self, rows: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
        """Return copies of these rows, for :meth:`restore`."""
        return self._matrix[rows], self._norms[rows], self._scales[rows], self._computed[rows]

    def restore(self, rows: NDArray[np.intp], saved: tuple[NDArray[Any], ...], mask: NDArray[np.bool_]) -> None:
        """Put back what :meth:`snapshot` saved, for the rows in ``mask``."""
        for ours, theirs in zip((self._matrix, self._norms, self._scales, self._computed), saved, strict=True):
            ours[rows[mask]] = theirs[mask]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Return a context in which :meth:`state_dict` copies no rows: it must be used before the next round."""
        self._lent = True
        try:
            yield
        finally:
            self._lent = False

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as plain lists and arrays."""
        used = len(self._row)
        return {
            "ids": list(self._row),
            "momenta": self.matrix[:used] if self._lent else self._copied(range(used)),
            "norms": self._norms[:used].copy(),
            "scales": self._scales[:used].copy(),
            "computed": self._computed[:used].copy(),
            "selected": self._selected[:used].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory; anything malformed is refused as a whole."""
        ids, matrix = list(state["ids"]), np.asarray(state["momenta"])
        norms, scales = (np.array(state[key], dtype=np.float64) for key in ("norms", "scales"))
        computed, selected = (np.array(state[key], dtype=np.int64) for key in ("computed", "selected"))
        columns = (norms, scales, computed, selected)
        if matrix.ndim != _MATRIX or not len(ids) == len(set(ids)) == len(matrix):
            raise StateError(f"momenta need one row per distinct id; got {len(ids)} ids, shape {matrix.shape}")
        if any(column.shape != matrix.shape[:1] for column in columns):
            raise StateError(f"momenta need {len(ids)} norms, scales and rounds each")
        if matrix.dtype not in _PRECISIONS or not all(np.all(np.isfinite(row)) for row in matrix):
            raise StateError(f"momenta must be finite numbers of half, single or double precision; got {matrix.dtype}")
        if not all(np.all(np.isfinite(column) & (column >= 0)) for column in (norms, scales)):
            raise StateError("norms and scales of momenta must be finite and not negative")
        ids = [as_client_id(client) for client in ids]
        matrix, scales = self._taken_over(matrix, scales)
        self._row = {client: k for k, client in enumerate(ids)}
        self._norms, self._scales, self._computed, self._selected = norms, scales, computed, selected
        self._matrix = matrix
        self._matrix = self._copied(range(len(ids)))

    def _taken_over(self, matrix: Floats, scales: NDArray[np.float64]) -> tuple[Floats, NDArray[np.float64]]:
        """Return rows that another memory kept, and their scales, as this one keeps them."""
        return vectors.wide(matrix), scales


class HalfMomentumMemory(MomentumMemory):
    """The same in half precision: 2 d bytes for each client. Arithmetic is in the precision of the updates.

    A row is kept times a power of two, so that its norm is just below 2^15: nothing overflows, and what is lost below
    the smallest numbers is a billionth of the norm.
    """

    def _kept_as(self, dtype: np.dtype[Any]) -> np.dtype[Any]:  # noqa: ARG002
        return np.dtype(np.float16)

    def _room(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.ldexp(1.0, _LARGEST - np.frexp(bounds)[1]))

    def _taken_over(self, matrix: Floats, scales: NDArray[np.float64]) -> tuple[Floats, NDArray[np.float64]]:
        if matrix.dtype == np.float16:
            return matrix, scales
        room = self._room(vectors.row_norms(matrix))
        half = np.empty(matrix.shape, dtype=np.float16)
        for row, kept, factor in zip(matrix, half, room, strict=True):
            kept[:] = row * factor
        return half, scales / room
