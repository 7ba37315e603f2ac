"""Slow, literal twins of MAB-RFL, written from the paper's text and from the audit of the released code.

Plain loops over vectors, scikit-learn's own PCA and clustering, no Gram matrix. They know nothing of
the library except its named random stream for ties.
"""

import math

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from sklearn.decomposition import PCA

from mabrfl.rng import generator


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def unit(vector):
    return vector / np.linalg.norm(vector)


def connected_subgraphs(vertices, linked):
    """All connected subgraphs, by depth-first search, in the order of their first vertex."""
    seen, found = set(), []
    for start in vertices:
        if start in seen:
            continue
        stack, members = [start], []
        seen.add(start)
        while stack:
            vertex = stack.pop()
            members.append(vertex)
            for other in vertices:
                if other not in seen and linked(vertex, other):
                    seen.add(other)
                    stack.append(other)
        found.append(sorted(members))
    return found


def split(features):
    labels = AgglomerativeClustering(n_clusters=2).fit_predict(PCA(n_components=0.95).fit_transform(features))
    return [np.flatnonzero(labels == label) for label in (0, 1)]


class PaperTwin:
    """Alg. 2, 4 and 5 line by line."""

    def __init__(self, *, c_max=0.7, c_min=0.3, alpha=-0.1, history=0.1, seed=0):
        self.c_max, self.c_min, self.alpha, self.history, self.seed = c_max, c_min, alpha, history, seed
        self.B, self.M = {}, {}
        self.momenta, self.last = {}, {}

    def aggregate(self, ids, matrix, t):
        g = {k: matrix[i].astype(np.float64) for i, k in enumerate(ids)}
        for k in ids:
            self.B.setdefault(k, 1)
            self.M.setdefault(k, 1)
        selected = list(ids)
        sybil = self.isa(selected, g, t)
        selected = [k for k in selected if k not in sybil]
        outlier = self.insa(selected, g, t)
        selected = [k for k in selected if k not in outlier]
        for k in sybil + outlier:
            self.M[k] += 1
        for k in selected:
            self.B[k] += 1
        if not selected:
            return np.zeros(matrix.shape[1]), selected
        eta = np.mean([np.linalg.norm(g[k]) for k in selected])
        return eta * np.mean([unit(self.momenta[k]) for k in selected], axis=0), selected

    def isa(self, selected, g, t):
        threshold = max(self.c_max * math.exp((1 - t) / 20), self.c_min)
        graphs = connected_subgraphs(selected, lambda j, k: cosine(g[j], g[k]) >= threshold)
        order = generator(self.seed, "component-ties", t).permutation(len(graphs))
        largest = max((graphs[i] for i in order), key=len)
        return largest if len(largest) > 1 else []

    def insa(self, selected, g, t):
        for k in selected:
            before = self.momenta.get(k, np.zeros_like(g[k]))
            self.momenta[k] = g[k] + self.history ** (t - self.last.get(k, t)) * before
            self.last[k] = t
        if len(selected) < 2:
            return []
        clusters = split(np.array([unit(self.momenta[k]) for k in selected]))
        smaller, larger = sorted(([selected[i] for i in cluster] for cluster in clusters), key=len)
        m_l = np.mean([self.momenta[k] for k in larger], axis=0)
        m_s = np.mean([self.momenta[k] for k in smaller], axis=0)
        if cosine(m_l, m_s) > self.alpha or len(smaller) == len(larger):
            return []
        return smaller


class ReferenceTwin:
    """The released code's behaviour, from the audit's column "released code"."""

    def __init__(self, *, c_max=0.3, c_min=0.1, alpha=0.0, history=0.1):
        self.c_max, self.c_min, self.alpha, self.history = c_max, c_min, alpha, history
        self.B, self.M = {}, {}
        self.momenta, self.selected_epoch = {}, {}

    def aggregate(self, ids, matrix, t):
        epoch = t - 1
        g = {k: matrix[i].astype(np.float64) for i, k in enumerate(ids)}
        for k in ids:
            self.B.setdefault(k, 1)
            self.M.setdefault(k, 1)
            before = self.momenta.get(k, np.zeros_like(g[k]))
            gap = epoch - self.selected_epoch.get(k, epoch)
            self.momenta[k] = unit(g[k] + self.history**gap * before)
            self.selected_epoch[k] = epoch
        left = list(ids)
        threshold = max(self.c_max * math.exp(-epoch / 20), self.c_min)
        graphs = connected_subgraphs(left, lambda j, k: cosine(self.momenta[j], self.momenta[k]) > threshold)
        largest = sorted(graphs, key=len, reverse=True)[0]
        if len(largest) > 1:
            left = [k for k in left if k not in largest]
        good = left
        if len(left) >= 2:
            zero, one = split(np.array([self.momenta[k] for k in left]))
            means = [np.mean([self.momenta[left[i]] for i in cluster], axis=0) for cluster in (zero, one)]
            if cosine(*means) < self.alpha:
                bad = zero if len(zero) <= len(one) else one
                good = [k for i, k in enumerate(left) if i not in bad]
        for k in ids:
            if k in good:
                self.B[k] += 1
            else:
                self.M[k] += 1
        if not good:
            return np.zeros(matrix.shape[1]), good
        eta = np.median([np.linalg.norm(g[k]) for k in good])
        return eta * np.mean([self.momenta[k] for k in good], axis=0), good
