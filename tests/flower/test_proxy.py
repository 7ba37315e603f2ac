"""A reverse proxy that lets nodes in and closes the Control API, which in open Flower asks for no password."""

from __future__ import annotations

import shutil

import pytest

from flower_processes import ROOT
from flower_secure import Secure

HAVE_NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAVE_NGINX, reason="NOT TESTED: nginx is not installed (Debian: apt install nginx-light)"),
]


def test_nodes_come_in_through_the_proxy_and_nobody_else():
    with Secure(nodes=2, proxied=True) as secure:
        _, status = secure.run(
            app=ROOT / "tests" / "flower_apps" / "steady",
            rounds=1,
            nodes=2,
            state_dir=str(secure.home / "proxied"),
        )
        assert status == "finished:completed", secure.logs()
        assert {row["client"] for row in secure.rows("proxied")} == set(secure.identities)
        assert all(row["verdict"] == "accepted" for row in secure.rows("proxied"))
        inside = secure.flwr("list", "here", "--format", "json")
        secure.connect(f"127.0.0.1:{secure.entrance}", certificate=secure.home / "ca.crt")
        outside = secure.flwr("list", "here", "--format", "json")
        register = secure.flwr("supernode", "register", str(secure.home / "node_0.pub"), "here")
        assert "completed" in inside
        assert "completed" not in outside
        assert "403" in outside
        assert "403" in register
