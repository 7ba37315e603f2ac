"""A deployment with TLS and node authentication, one key per node."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self

from flower_keys import make_certificates, make_key
from flower_processes import APP, Flower, free_port, listening, wait_for
from mabrfl.recording.audit import read_audit, valid_rows

NODES = 4
FILES = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}


class Secure(Flower):
    """A SuperLink with TLS that knows the keys of its nodes, which may come in through a proxy."""

    def __init__(self, *, nodes: int = NODES, proxied: bool = False, attacks: Mapping[int, str] = {}) -> None:
        super().__init__()
        self.count, self.proxied, self.attacks = nodes, proxied, dict(attacks)
        self.entrance = free_port() if proxied else self.port
        self.node_ids: dict[int, str] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            make_certificates(self.home)
            self.connect(certificate=self.home / "ca.crt")
            self.link = self.secure_superlink()
            if self.proxied:
                self.proxy()
            self.identities = [self.register(k) for k in range(self.count)]
            self.nodes = [self.node(k) for k in range(self.count)]
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def secure_superlink(self) -> subprocess.Popen[bytes]:
        """Start the SuperLink with its certificate and its database."""
        tls = [f"--ssl-{what}={self.home / name}" for what, name in FILES.items()]
        return self.superlink(*tls, "--enable-supernode-auth", "--database", str(self.home / "state.db"))

    def register(self, k: int) -> str:
        """Make a key for a node and register it; return the identity it stands for."""
        identity = make_key(self.home / f"node_{k}")
        told = self.flwr("supernode", "register", str(self.home / f"node_{k}.pub"), "here", "--name", f"node-{k}")
        found = re.search(r"SuperNode (\d+) registered", told)
        assert found, told
        self.node_ids[k] = found[1]
        return identity

    def proxy(self) -> None:
        """Start nginx with the example's own configuration, the ports filled in."""
        text = (APP / "nginx.conf").read_text()
        text = text.replace("PUBLIC_PORT", str(self.entrance)).replace("SUPERLINK_PORT", str(self.port))
        (self.home / "nginx.conf").write_text(text.replace("listen 0.0.0.0:", "listen 127.0.0.1:"))
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        assert program is not None
        self.start(program, "-p", str(self.home), "-c", str(self.home / "nginx.conf"), "-e", "stderr")
        wait_for("nginx", lambda: listening(self.entrance), 600)

    def node(self, k: int) -> subprocess.Popen[bytes]:
        """Start a node with its own key."""
        trust = ["--root-certificates", str(self.home / "ca.crt")]
        key = ["--auth-supernode-private-key", str(self.home / f"node_{k}")]
        more = f'attack="{self.attacks[k]}"' if k in self.attacks else ""
        return self.supernode(k, self.count, *trust, *key, port=self.entrance, more=more)

    def rows(self, name: str, kind: str = "reply") -> list[dict[str, Any]]:
        """Return the rows of a run's audit that stand."""
        path = self.home / name / "audit.jsonl"
        return [dict(row) for row in valid_rows(read_audit(path)) if row["kind"] == kind] if path.exists() else []

    def after_round(self, name: str, number: int, seconds: float = 600) -> None:
        """Wait until a round is finished."""
        wait_for(f"round {number}", lambda: len(self.rows(name, "round")) >= number, seconds, every=0.5)
