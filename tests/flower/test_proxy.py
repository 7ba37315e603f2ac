"""A reverse proxy that lets nodes in and closes the Control API, which in open Flower asks for no password."""

from __future__ import annotations

import shutil
import ssl
import urllib.error
import urllib.request

import pytest

from flower_keys import make_certificates
from flower_processes import ROOT, Flower, free_port, listening, wait_for
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


def test_the_metrics_are_read_through_tls_with_the_token_and_not_without():
    with Flower() as flower:
        make_certificates(flower.home)
        (flower.home / "state").mkdir()
        (flower.home / "state" / "config.json").write_text("{}")
        (flower.home / "token").write_text("0123456789abcdef")
        inside, outside = free_port(), free_port()
        options = ("--port", str(inside), "--token-file", str(flower.home / "token"))
        flower.start("mabrfl", "serve", str(flower.home / "state"), *options)
        block = (ROOT / "examples" / "deployment" / "metrics-proxy.conf").read_text("utf-8")
        block = block.replace("/etc/federation", str(flower.home)).replace("9464", str(inside))
        block = block.replace("listen 9465", f"listen 127.0.0.1:{outside}")
        text = f"daemon off; pid nginx.pid; events {{}} http {{ access_log off;\n{block}}}\n"
        (flower.home / "nginx.conf").write_text(text)
        flower.start(str(HAVE_NGINX), "-p", str(flower.home), "-c", str(flower.home / "nginx.conf"), "-e", "stderr")
        wait_for("nginx and mabrfl serve", lambda: listening(inside) and listening(outside), 600)
        trust = ssl.create_default_context(cafile=flower.home / "ca.crt")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        address = f"https://localhost:{outside}/metrics"
        allowed = urllib.request.Request(address, headers={"Authorization": "Bearer 0123456789abcdef"})
        with opener.open(allowed, timeout=60) as answer:
            assert b"mabrfl_server_running 0" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opener.open(address, timeout=60)
