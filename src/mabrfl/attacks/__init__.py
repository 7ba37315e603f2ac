"""Attacks: each turns an :class:`AttackerView` into the updates of the malicious clients.

======================================= ============ ==============================================
attack                                  knowledge    updates of the attackers
======================================= ============ ==============================================
:class:`LabelFlip`                      agnostic     training on flipped labels, each its own
:class:`SignFlip`, :class:`Gaussian`    agnostic     reversed updates, noise; each its own
:class:`LIE`, :class:`IPM`              partial      the benign mean, shifted or reversed
:class:`Mimic`                          partial      copies of one benign update
:class:`MinMax`, :class:`MinSum`        partial      the benign mean, moved as far as a distance bound allows
:class:`FangTrim`, :class:`FangKrum`    partial      beyond the benign extremes; the signs of the mean, reversed
:class:`OptimalLIE`, :class:`OptimalIPM`full         LIE and IPM with the factor that moves the real step furthest
:class:`AgrKrum`                        full         the benign mean, moved as far as Krum accepts it
:class:`Bridge`, :class:`Frame`         partial      the benign mean; copies of one victim for the whole run
:class:`Hub`                            agnostic     the last public step
:class:`SplitSybils`, :class:`Decoy`    partial      a push against the benign mean, in groups or behind decoys
:class:`JitteredSybils`                 partial      a push hidden in noise, mutual cosine as chosen
:class:`OrthogonalDrift`                agnostic     one random direction for the whole run, in noise
:class:`StatisticalMimicry`             agnostic     honest and synthetic updates blended, with a drift
:class:`PoisonedFL`, :class:`MPAF`      agnostic     a push with the same signs in every round; towards a random model
:class:`Trapsetter`                     agnostic     a step to the worst model nearby, and the honest mean reversed
:class:`FreeRider`, :class:`NanSender`  agnostic     zeros or the last public step; numbers that are not finite
:class:`Magnitude`                      agnostic     honest updates times a large factor
:class:`Sleeper`, :class:`OnOff`        the inner's  honest updates in some rounds, another attack in the others
:class:`Whitewash`                      the inner's  another attack, under a new identity after each rejection
:class:`Braggart`                       the inner's  another attack, with false numbers of examples
:class:`Evade`                          the inner's  another attack or honest updates, as a search finds best
:class:`Growing`                        partial      honest updates, and a push that grows from nothing
:class:`Backdoor`, :class:`DBA`         agnostic     training on pictures with a mark, or with a part of it
:class:`EdgeCase`                       agnostic     training on a rare kind of one class, labelled as another
:class:`ModelReplacement`               agnostic     the same, long enough to replace the averaged model
:class:`ConstrainAndScale`              agnostic     the same, trained to stay near the global model
:class:`Neurotoxin`                     agnostic     the same, without the coordinates that the model moves most
:class:`AgrMabRfl`                      full         the most harmful rows that a copy of the real defense accepts
:class:`LayerChoosing`                  full         a push in those layers in which the real defense accepts it
======================================= ============ ==============================================

Start with :class:`Attack` to write one of your own. :mod:`mabrfl.attacks.selftest` measures the harm of an attack
to plain averaging.
"""

from mabrfl.attacks.backdoor import Backdoor
from mabrfl.attacks.backdoor_variants import DBA, ConstrainAndScale, ModelReplacement, Neurotoxin
from mabrfl.attacks.base import Attack, as_attack, craft
from mabrfl.attacks.colluding import IPM, LIE, lie_factor
from mabrfl.attacks.data_poisoning import LabelFlip
from mabrfl.attacks.drifting import Growing, StatisticalMimicry
from mabrfl.attacks.edge_cases import EdgeCase
from mabrfl.attacks.evading import Evade
from mabrfl.attacks.fake_clients import MPAF, FreeRider, NanSender, PoisonedFL
from mabrfl.attacks.fang import FangKrum, FangTrim
from mabrfl.attacks.framing import Bridge, Frame, Hub
from mabrfl.attacks.independent import Gaussian, Magnitude, SignFlip
from mabrfl.attacks.layer_choosing import LayerChoosing
from mabrfl.attacks.mimic import Mimic
from mabrfl.attacks.optimal import OptimalIPM, OptimalLIE
from mabrfl.attacks.optimized import AgrKrum, MinMax, MinSum
from mabrfl.attacks.sybils import Decoy, JitteredSybils, OrthogonalDrift, SplitSybils
from mabrfl.attacks.tailored import AgrMabRfl
from mabrfl.attacks.trapping import Trapsetter
from mabrfl.attacks.view import AttackerView, Knowledge, Secrets
from mabrfl.attacks.wrapping import Braggart, OnOff, Sleeper, Whitewash, Wrapper

__all__ = [
    "DBA",
    "IPM",
    "LIE",
    "MPAF",
    "AgrKrum",
    "AgrMabRfl",
    "Attack",
    "AttackerView",
    "Backdoor",
    "Braggart",
    "Bridge",
    "ConstrainAndScale",
    "Decoy",
    "EdgeCase",
    "Evade",
    "FangKrum",
    "FangTrim",
    "Frame",
    "FreeRider",
    "Gaussian",
    "Growing",
    "Hub",
    "JitteredSybils",
    "Knowledge",
    "LabelFlip",
    "LayerChoosing",
    "Magnitude",
    "Mimic",
    "MinMax",
    "MinSum",
    "ModelReplacement",
    "NanSender",
    "Neurotoxin",
    "OnOff",
    "OptimalIPM",
    "OptimalLIE",
    "OrthogonalDrift",
    "PoisonedFL",
    "Secrets",
    "SignFlip",
    "Sleeper",
    "SplitSybils",
    "StatisticalMimicry",
    "Trapsetter",
    "Whitewash",
    "Wrapper",
    "as_attack",
    "craft",
    "lie_factor",
]
