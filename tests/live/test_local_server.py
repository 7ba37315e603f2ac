"""Who may ask the server for what, and what it answers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mabrfl.errors import OutputError
from mabrfl.live import local_server
from mabrfl.live.local_server import LocalServer
from mabrfl.live.routes import routes_of, view_of
from result_folders import run_config, write_run, write_sweep

TOKEN = "a-token-for-the-tests-1234567890"
ROUTES = ("/", "/live", "/story?client=0")
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}


def serving(folder: Path) -> LocalServer:
    server = LocalServer("127.0.0.1", 0, routes_of(view_of(folder)), TOKEN)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    folder = tmp_path_factory.mktemp("runs") / "one"
    write_run(folder, run_config(defense="krum", attack="lie", attackers=0.3), 90.0)
    (folder.parent / "secret").write_text("secret")
    with serving(folder) as made:
        yield made
        made.shutdown()


def ask(server: LocalServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


@pytest.mark.parametrize("path", [*ROUTES, "/nothing"])
@pytest.mark.parametrize(
    "sent",
    ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "%00", "ä", f"Bearer {TOKEN}"],
    ids=lambda text: text[-9:] or "none",
)
def test_every_route_is_refused_without_the_token(server: LocalServer, path: str, sent: str) -> None:
    code, body, headers = ask(server, path, Authorization=f"Bearer {sent}".encode().decode("latin-1"))
    assert (code, body, headers["WWW-Authenticate"]) == (401, b"a token is needed\n", "Bearer")
    joined = f"{path}{'&' if '?' in path else '?'}token={sent.replace(' ', '+').encode('ascii', 'ignore').decode()}"
    assert ask(server, joined)[0] == 401
    assert ask(server, path)[0] == 401


@pytest.mark.parametrize("path", ROUTES)
def test_the_token_opens_a_route_in_the_header_or_in_the_address(server: LocalServer, path: str) -> None:
    assert ask(server, path, **ALLOWED)[0] == 200
    assert ask(server, f"{path}{'&' if '?' in path else '?'}token={TOKEN}")[0] == 200
    assert ask(server, f"{path}{'&' if '?' in path else '?'}token={TOKEN}", Authorization="Bearer wrong")[0] == 401


def test_tokens_are_compared_in_constant_time(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    genuine = local_server.hmac.compare_digest
    monkeypatch.setattr(
        local_server.hmac, "compare_digest", lambda one, other: compared.append((one, other)) or genuine(one, other)
    )
    assert ask(server, "/live", Authorization="Bearer guess")[0] == 401
    assert compared == [(b"guess", TOKEN.encode())]


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret", "/..%2fsecret", "/%2e%2e/secret", "//etc/passwd", "/live/../../secret", "/live/", "/./live"),
        *("/data/live.html", "/config.toml", "/rounds.jsonl", "\\..\\secret", "/live%00", "/LIVE", "*"),
        *(
            "/story?client=../secret",
            "/story?client=0&round=../1",
            "/story?client=0&round=99",
            "/story",
            "/story?client=[]",
        ),
    ],
)
def test_other_paths_and_traversal_find_nothing(server: LocalServer, path: str) -> None:
    code, body, _ = ask(server, path, **ALLOWED)
    assert code == 404
    assert b"secret" not in body.replace(b"../secret", b"")


def test_a_cell_is_found_by_its_whole_key_alone(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0)])
    write_run(tmp_path / "s" / "cells" / "secret", run_config(), 90.0)
    key = json.loads((tmp_path / "s" / "cells.json").read_text())[0]["key"]
    with serving(tmp_path / "s") as made:
        assert json.loads(ask(made, f"/live?cell={key}", **ALLOWED)[1])["done"] == 4
        for other in (key[:16], key + "0", "secret", "../cells/secret", "..", ".", "/", "%2e%2e%2fsecret"):
            assert ask(made, f"/live?cell={other}", **ALLOWED)[0] == 404
        assert ask(made, "/story?client=0", **ALLOWED)[0] == 404
        assert ask(made, f"/story?client=0&cell={key}", **ALLOWED)[0] == 200
        made.shutdown()


def test_a_plan_whose_keys_are_paths_is_not_followed(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", [({"defense": "krum"}, 90.0)])
    write_run(tmp_path / "secret", run_config(), 90.0)
    plan = json.loads((tmp_path / "s" / "cells.json").read_text())
    (tmp_path / "s" / "cells.json").write_text(json.dumps([*plan, {**plan[0], "key": "../../secret"}]))
    view = view_of(tmp_path / "s")
    assert [row["key"] for row in view.document()["cells"]] == [plan[0]["key"]]


@pytest.mark.parametrize(
    "name",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "[::2]"],
)
def test_a_web_page_whose_name_leads_here_is_refused(server: LocalServer, name: str) -> None:
    code, body, _ = ask(server, f"/live?token={TOKEN}", Host=name, **ALLOWED)
    assert (code, body) == (403, b"unknown host\n")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST:9", "[::1]:9", "[::1]", "127.0.0.1:80"])
def test_the_names_of_this_machine_are_answered(server: LocalServer, name: str) -> None:
    assert ask(server, "/live", Host=name, **ALLOWED)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"])
def test_methods_that_could_change_something_are_refused(server: LocalServer, method: str) -> None:
    code, body, headers = ask(server, "/live", method, **ALLOWED)
    assert (code, body, headers["Content-Type"]) == (501, b"refused\n", "text/plain; charset=utf-8")


def test_head_has_the_header_of_get_and_no_content(server: LocalServer) -> None:
    got, asked = ask(server, "/live", **ALLOWED), ask(server, "/live", "HEAD", **ALLOWED)
    assert (asked[0], asked[1]) == (200, b"")
    assert asked[2]["Content-Length"] == str(len(got[1]))


def test_what_has_not_changed_is_not_sent_again(server: LocalServer) -> None:
    _, body, headers = ask(server, "/live", **ALLOWED)
    code, again, _ = ask(server, "/live", If_None_Match=headers["ETag"], **ALLOWED)
    assert (code, again, len(body) > 100) == (304, b"", True)


@pytest.mark.parametrize(
    "line",
    [b"GET\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n"],
)
def test_a_malformed_request_ends_nothing(server: LocalServer, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(line)
        assert b"Traceback" not in connection.recv(10_000)
    assert ask(server, "/live?" + "&".join(f"a{k}=1" for k in range(99)), **ALLOWED)[0] == 400
    assert ask(server, "/live", **ALLOWED)[0] == 200


def test_a_port_in_use_is_named(server: LocalServer) -> None:
    with pytest.raises(OutputError, match=rf"port {server.server_port}: Address already in use; --port 0 takes"):
        LocalServer("127.0.0.1", server.server_port, {}, TOKEN)


def test_an_address_of_version_six_can_be_listened_on() -> None:
    try:
        made = LocalServer("::1", 0, {}, TOKEN)
    except OutputError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    with made:
        assert made.address == f"http://[::1]:{made.server_port}"


def test_answers_may_not_be_kept_framed_or_guessed_at(server: LocalServer) -> None:
    for path in ROUTES:
        headers: dict[str, Any] = ask(server, path, **ALLOWED)[2]
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Python" not in headers["Server"]
