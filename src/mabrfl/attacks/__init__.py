"""Attacks: each turns an :class:`AttackerView` into the updates of the malicious clients.

======================================= ============ ==============================================
attack                                  knowledge    updates of the attackers
======================================= ============ ==============================================
:class:`LabelFlip`                      agnostic     training on flipped labels, each its own
:class:`SignFlip`, :class:`Gaussian`    agnostic     reversed updates, noise; each its own
:class:`LIE`, :class:`IPM`              partial      the benign mean, shifted or reversed
:class:`Mimic`                          partial      copies of one benign update
:class:`MinMax`, :class:`MinSum`        partial      the benign mean, moved as far as a distance bound allows
:class:`AgrKrum`                        full         the benign mean, moved as far as Krum accepts it
:class:`Bridge`, :class:`Frame`         partial      the benign mean; copies of one victim for the whole run
:class:`Hub`                            agnostic     the last public step
:class:`SplitSybils`, :class:`Decoy`    partial      a push against the benign mean, in groups or behind decoys
:class:`JitteredSybils`                 partial      a push hidden in noise, mutual cosine as chosen
:class:`OrthogonalDrift`                agnostic     one random direction for the whole run, in noise
:class:`Magnitude`                      agnostic     honest updates times a large factor
:class:`Sleeper`, :class:`OnOff`        the inner's  honest updates in some rounds, another attack in the others
:class:`Whitewash`                      the inner's  another attack, under a new identity after each rejection
:class:`Braggart`                       the inner's  another attack, with false numbers of examples
:class:`Backdoor`                       agnostic     training on pictures with a mark, each its own
:class:`AgrMabRfl`                      full         the most harmful rows that a copy of the real defense accepts
======================================= ============ ==============================================

Start with :class:`Attack` to write one of your own. :mod:`mabrfl.attacks.selftest` measures the harm of an attack
to plain averaging.
"""

from mabrfl.attacks.backdoor import Backdoor
from mabrfl.attacks.base import Attack, as_attack, craft
from mabrfl.attacks.colluding import IPM, LIE, lie_factor
from mabrfl.attacks.data_poisoning import LabelFlip
from mabrfl.attacks.framing import Bridge, Frame, Hub
from mabrfl.attacks.independent import Gaussian, Magnitude, SignFlip
from mabrfl.attacks.mimic import Mimic
from mabrfl.attacks.optimized import AgrKrum, MinMax, MinSum
from mabrfl.attacks.sybils import Decoy, JitteredSybils, OrthogonalDrift, SplitSybils
from mabrfl.attacks.tailored import AgrMabRfl
from mabrfl.attacks.view import AttackerView, Knowledge, Secrets
from mabrfl.attacks.wrapping import Braggart, OnOff, Sleeper, Whitewash, Wrapper

__all__ = [
    "IPM",
    "LIE",
    "AgrKrum",
    "AgrMabRfl",
    "Attack",
    "AttackerView",
    "Backdoor",
    "Braggart",
    "Bridge",
    "Decoy",
    "Frame",
    "Gaussian",
    "Hub",
    "JitteredSybils",
    "Knowledge",
    "LabelFlip",
    "Magnitude",
    "Mimic",
    "MinMax",
    "MinSum",
    "OnOff",
    "OrthogonalDrift",
    "Secrets",
    "SignFlip",
    "Sleeper",
    "SplitSybils",
    "Whitewash",
    "Wrapper",
    "as_attack",
    "craft",
    "lie_factor",
]
