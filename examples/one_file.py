"""MAB-RFL in one sitting: the whole method of the paper in one file, with NumPy alone.

    python examples/one_file.py

Twenty clients learn to read scikit-learn's digits together; six of them lie: three flip their labels,
three all send the same, the reverse of an honest step. First everybody is averaged (FedAvg), then the
same clients meet MAB-RFL. A test shows that the defense below and ``mabrfl.MabRfl(preset="paper")``
decide the same on every round of this run (of two equally large groups of sybils this file takes the
one with the lowest number, the preset a random one).

The paper sets c_max and c_min by hand for each data set (0.7 and 0.3 for a CNN on MNIST). Honest
updates of this linear model are more alike than those, with cosines up to 0.84: hence 0.9 and 0.85.

Alg. and Eq. are those of "Shielding Federated Learning: Robust Aggregation with Adaptive Client
Selection" (IJCAI 2022), numbered in the order of its text.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

K, LIARS, ROUNDS, SEED = 20, 6, 20, 0
Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Watch = Callable[..., None]

# --------------------------------------------------------------------------- the defense


@dataclass
class Shield:
    """Everything the server remembers: B and M of each client, and its momenta."""

    num_clients: int
    c_max: float = 0.9
    c_min: float = 0.85
    alpha: float = -0.1
    history: float = 0.1
    seed: int = 0
    momenta: dict[int, tuple[int, Array]] = field(default_factory=dict)  # client -> (round, vector)

    def __post_init__(self) -> None:
        self.B, self.M = np.ones(self.num_clients), np.ones(self.num_clients)  # Alg. 2 line 1
        self.rng = np.random.default_rng(self.seed)

    def draw(self, _t: int) -> tuple[Array, Array]:
        """p_k ~ Beta(B_k, M_k), and one coin per client (a test passes the library's own)."""
        return self.rng.beta(self.B, self.M), self.rng.random(self.num_clients)

    def select(self, t: int) -> Ints:
        """Alg. 3, ACS: client k takes part with probability p_k."""
        p, coin = self.draw(t)
        chosen = np.flatnonzero(coin < p)
        while len(chosen) == 0:  # lines 5-7: a random non-empty subset
            chosen = np.flatnonzero(self.rng.random(self.num_clients) < 0.5)
        return chosen

    def aggregate(self, chosen: Ints, g: Array, t: int) -> tuple[Array, Ints]:
        """Alg. 2 lines 5-18. ``g`` has one update per chosen client; return the step and who was accepted."""
        sybil = find_sybils(cosines(g), max(self.c_max * np.exp((1 - t) / 20), self.c_min))  # Eq. 3
        left, g_left = chosen[~sybil], g[~sybil]
        m = np.array([self.momentum(k, g_k, t) for k, g_k in zip(left, g_left, strict=True)])
        outlier = find_outliers(m, self.alpha) if len(left) > 1 else np.zeros(len(left), bool)
        good = left[~outlier]
        for k in chosen:  # lines 12-14: rewards
            if k in good:
                self.B[k] += 1
            else:
                self.M[k] += 1
        if len(good) == 0:
            return np.zeros(g.shape[1]), good
        eta = np.linalg.norm(g_left[~outlier], axis=1).mean()  # line 16
        return eta * unit(m[~outlier]).mean(axis=0), good  # lines 17-18

    def momentum(self, k: int, g_k: Array, t: int) -> Array:
        """Eq. 5: m = g + lambda^(t - t_k) m_{t_k}."""
        t_k, before = self.momenta.get(k, (t, np.zeros_like(g_k)))
        self.momenta[k] = (t, g_k + self.history ** (t - t_k) * before)
        return self.momenta[k][1]


def unit(x: Array) -> Array:
    """Eq. 6: each row divided by its norm."""
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def cosines(x: Array) -> Array:
    """Cosine similarity of each pair of rows."""
    return unit(x) @ unit(x).T


def find_sybils(cosine: Array, threshold: float) -> Mask:
    """Alg. 4, ISA: the largest connected group of updates too similar in direction, if any two are."""
    linked, group = cosine >= threshold, np.arange(len(cosine))
    for _ in group:  # every client takes the smallest number among its neighbours until nothing changes
        group = np.where(linked, group, len(group)).min(axis=1)
    sizes = np.bincount(group, minlength=len(group))
    return np.asarray((group == sizes.argmax()) & (sizes.max() > 1))


def find_outliers(m: Array, alpha: float) -> Mask:
    """Alg. 5, INSA: PCA, two clusters, and the smaller one goes if their means point apart."""
    first = two_clusters(key_features(unit(m)))
    one, other = m[first].mean(axis=0), m[~first].mean(axis=0)
    cosine = one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
    if cosine > alpha or first.sum() == (~first).sum():
        return np.zeros(len(m), bool)
    return first if first.sum() < (~first).sum() else ~first


def key_features(x: Array, variance: float = 0.95) -> Array:
    """PCA: the scores on the fewest components that explain 95 % of the variance."""
    u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    kept = np.searchsorted(np.cumsum(s**2) / np.sum(s**2), variance, side="right") + 1
    return np.asarray((u * s)[:, :kept])


def two_clusters(x: Array) -> Mask:
    """Agglomerative clustering: merge the two clusters whose union costs least (Ward) until two are left."""
    clusters = [[k] for k in range(len(x))]
    while len(clusters) > 2:
        means, sizes = np.array([x[c].mean(axis=0) for c in clusters]), np.array([len(c) for c in clusters])
        cost = np.sum((means[:, None] - means[None]) ** 2, axis=2)
        cost = cost * sizes[:, None] * sizes / (sizes[:, None] + sizes) + np.diag(np.full(len(sizes), np.inf))
        i, j = np.unravel_index(cost.argmin(), cost.shape)
        clusters = [c for k, c in enumerate(clusters) if k not in (i, j)] + [clusters[i] + clusters[j]]
    return np.isin(np.arange(len(x)), clusters[0])


# --------------------------------------------------------------------------- the federation


def softmax(z: Array) -> Array:
    """Row-wise softmax."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def local_update(w: Array, data: tuple[Array, Ints], rng: np.random.Generator) -> Array:
    """One client trains softmax regression on its own data and returns what changed."""
    (x, y), local = data, w.reshape(65, 10).copy()
    order = rng.permutation(len(x))
    for start in range(0, len(x), 16):
        rows = order[start : start + 16]
        local -= 0.5 * x[rows].T @ (softmax(x[rows] @ local) - np.eye(10)[y[rows]]) / len(rows)
    return local.ravel() - w


def make_clients(rng: np.random.Generator, q: float = 0.3) -> tuple[list[tuple[Array, Ints]], tuple[Array, Ints]]:
    """Deal the digits to K clients: each sample has the client's dominant label with probability q."""
    data = load_digits()
    x, y = np.c_[data.data / 16, np.ones(len(data.data))], data.target
    order = rng.permutation(len(x))
    test, pool = order[:360], order[360:]
    clients = []
    for k in range(K):
        odds = np.where(y[pool] == rng.integers(10), q, (1 - q) / 9)
        mine = rng.choice(pool, size=rng.integers(100, 200), replace=False, p=odds / odds.sum())
        labels = 9 - y[mine] if k < LIARS // 2 else y[mine]  # the first liars flip their labels
        clients.append((x[mine], labels))
    return clients, (x[test], y[test])


def simulate(server: str, watch: Watch = lambda *_: None, shield: Shield | None = None) -> list[float]:
    """Run the federation; return the accuracy after each round."""
    clients, (test_x, test_y) = make_clients(np.random.default_rng(SEED))
    shield = shield or Shield(K, seed=SEED)
    w, accuracy = np.zeros(650), list[float]()
    for t in range(1, ROUNDS + 1):
        chosen = shield.select(t) if server == "mab-rfl" else np.arange(K)
        g = np.array([local_update(w, clients[k], np.random.default_rng([SEED, t, k])) for k in chosen])
        colluding = (chosen >= LIARS // 2) & (chosen < LIARS)  # the others collude
        g[colluding] = -2 * local_update(w, clients[LIARS], np.random.default_rng([SEED, t, LIARS]))
        if server == "mab-rfl":
            step, good = shield.aggregate(chosen, g, t)
        else:
            sizes = np.array([len(clients[k][0]) for k in chosen])  # Eq. 1
            step, good = sizes @ g / sizes.sum(), chosen
        watch(t, chosen, g, step, good, shield)
        w = w + step
        accuracy.append(float(100 * np.mean((test_x @ w.reshape(65, 10)).argmax(axis=1) == test_y)))
    return accuracy


if __name__ == "__main__":

    def show(t: int, chosen: Ints, _g: Array, _step: Array, good: Ints, _shield: Shield) -> None:
        """One line per round: who took part, and who was turned away."""
        out = np.setdiff1d(chosen, good)
        lie, caught, honest = sum(chosen < LIARS), sum(out < LIARS), sum(out >= LIARS)
        print(f"round {t:2}: {len(chosen):2} selected, {lie} of them liars; rejected: {caught} liars, {honest} honest")

    plain, shielded = simulate("fedavg"), simulate("mab-rfl", show)
    print(f"{LIARS} of {K} clients lie. FedAvg: {plain[-1]:.1f} %, MAB-RFL: {shielded[-1]:.1f} %")
