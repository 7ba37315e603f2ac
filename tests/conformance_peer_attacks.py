"""Attacks of other libraries, for the golden vectors: functions of the honest rows, n and f."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Rows = np.ndarray[Any, Any]
Attack = Callable[[Rows, int, int], Any]
"""``(honest rows, n, f) -> one row``; None where the library refuses the input."""


def byzfl_attacks() -> dict[str, Attack]:
    """Attacks of ByzFL."""
    byzfl: Any = importlib.import_module("byzfl.attacks.attacks")
    return {
        "ALittleIsEnough": lambda honest, n, f: byzfl.ALittleIsEnough()(honest),
        "InnerProductManipulation": lambda honest, n, f: byzfl.InnerProductManipulation()(honest),
        "SignFlipping": lambda honest, n, f: byzfl.SignFlipping()(honest),
        "Mimic": lambda honest, n, f: byzfl.Mimic()(honest),
    }


def krum_attacks() -> dict[str, Attack]:
    """Attacks of krum."""
    import torch
    from krum.primitives.attacks import alie, sign_flip

    def call(kind: Any) -> Attack:
        def attack(honest: Rows, n: int, f: int) -> Any:
            try:
                return kind.generate(list(torch.from_numpy(honest)), f=f)[0].numpy()
            except ValueError:  # a factor that is not positive
                return None

        return attack

    return {"ALIEAttack": call(alie.ALIEAttack), "SignFlipAttack": call(sign_flip.SignFlipAttack)}


def byzpy_attacks() -> dict[str, Attack]:
    """Attacks of byzpy."""
    import torch
    from byzpy.attacks.empire import EmpireAttack
    from byzpy.attacks.little import LittleAttack
    from byzpy.attacks.mimic import MimicAttack
    from byzpy.attacks.sign_flip import SignFlipAttack

    def call(make: Callable[[int, int], Any]) -> Attack:
        return lambda honest, n, f: make(n, f).apply(honest_grads=list(torch.from_numpy(honest.copy()))).numpy()

    return {
        "LittleAttack": call(lambda n, f: LittleAttack(f, n)),
        "EmpireAttack": call(lambda n, f: EmpireAttack()),
        "MimicAttack": call(lambda n, f: MimicAttack()),
        "SignFlipAttack": lambda honest, n, f: SignFlipAttack().apply(base_grad=torch.from_numpy(honest[0])).numpy(),
    }


def blades_attacks() -> dict[str, Attack]:
    """Attacks of Blades 0.0.13; its package was made by the rules."""
    import torch

    class ByzantineClient:
        def __init__(self, *args: Any, **options: Any) -> None:
            self._state: dict[str, Any] = {}

    vars(sys.modules["blades.client"])["ByzantineClient"] = ByzantineClient
    folder = types.ModuleType("blades.attackers")
    folder.__path__ = [str(Path(str(sys.modules["blades"].__path__[0])) / "attackers")]
    sys.modules["blades.attackers"] = folder

    def call(make: Callable[[int, int], Any]) -> Attack:
        def attack(honest: Rows, n: int, f: int) -> Any:
            rows = torch.from_numpy(honest.copy())
            clients = [types.SimpleNamespace(get_update=row.clone, is_byzantine=lambda: False) for row in rows]
            server = types.SimpleNamespace(_clients=dict(enumerate(clients)), get_clients=lambda: clients)
            attacker = make(n, f)
            attacker.omniscient_callback(server)
            return attacker._state["saved_update"].numpy()

        return attack

    def module(name: str) -> Any:
        return importlib.import_module(f"blades.attackers.{name}")

    return {
        "AlieClient": call(lambda n, f: module("alieclient").AlieClient(n, f)),
        "IpmClient": call(lambda n, f: module("ipmclient").IpmClient()),
    }


ATTACKS: dict[str, Callable[[], dict[str, Attack]]] = {
    "byzfl": byzfl_attacks,
    "krum": krum_attacks,
    "byzpy": byzpy_attacks,
    "blades": blades_attacks,
}
