"""The live page in a real browser, at the width of a desk and of a hand."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import CHROMIUM, Page, browser
from mabrfl.live.local_server import LocalServer
from mabrfl.live.routes import routes_of, view_of
from mabrfl.recording import RoundRecord
from mabrfl.recording.audit import AuditLog
from mabrfl.recording.status import Alert, ClientStatus, FederationStatus, write_status
from mabrfl.updates import Verdict
from result_folders import run_config, write_run, write_sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="NO BROWSER: the live page is not tested (apt install chromium)"),
]

HOSTILE = '<script>document.title="broken"</script><img src=x onerror="document.title=1">'
TOKEN = "a-token-for-the-browser-123"
WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@contextlib.contextmanager
def served(page: Page, folder: Path, expected: str = "") -> Iterator[tuple[LocalServer, str]]:
    """Serve a folder; at the end the page must not have complained of anything but what is expected."""
    page.complaints.clear()
    with LocalServer("127.0.0.1", 0, routes_of(view_of(folder)), TOKEN) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, f"{server.address}/?token={TOKEN}"
        page.show("about:blank", 1280)
        server.shutdown()
    assert [line for line in page.complaints if not expected or expected not in line] == []


@pytest.fixture
def address(page: Page, folder: Path) -> Iterator[str]:
    with served(page, folder) as (_, made):
        yield made


def text(page: Page, selector: str) -> str:
    return str(page.value(f"document.querySelector({json.dumps(selector)}).innerText"))


def fits(page: Page) -> bool:
    return bool(page.value("document.documentElement.scrollWidth <= innerWidth"))


class TestRun:
    """50 clients and 100 rounds, of which 99 are there; two clients have hostile names."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        config = run_config(clients=50, rounds=100, attack="lie", attackers=0.3, defense="krum")
        write_run(tmp_path / "run", config, 90.0, rounds=98)
        with (tmp_path / "run" / "rounds.jsonl").open("a") as file:
            file.write(self.odd_round(99).to_json() + "\n")
        return tmp_path / "run"

    def odd_round(self, number: int) -> RoundRecord:
        verdicts: dict[Any, Verdict] = {HOSTILE: Verdict(False, HOSTILE), 3: Verdict(True, "accepted")}
        beliefs = dict.fromkeys(verdicts, (3.0, 1.0))
        return RoundRecord(number, 88.0, 0.2, tuple(verdicts), verdicts, beliefs, attack_success=12.0)

    @WIDTHS
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_a_run_is_drawn_and_a_click_tells_a_clients_story(
        self, page: Page, address: str, width: int, dark: bool, tmp_path: Path
    ) -> None:
        page.show(address, width, dark=dark)
        page.wait("document.querySelectorAll('#charts svg').length === 4")
        assert text(page, "#clock").startswith("99 of 100 rounds · about")
        assert text(page, "#state") == "going on"
        assert page.value("document.querySelectorAll('#clients tbody tr').length") == 51
        assert fits(page)
        # The map is painted: the cell of client 0 in round 1 has the colour of sybils.
        colour = page.value("[...document.getElementById('map').getContext('2d').getImageData(2, 8, 1, 1).data]")
        assert colour[:3] == ([0xF0, 0x82, 0x36] if dark else [0xD5, 0x5E, 0x00])
        page.value("document.getElementById('map').scrollIntoView()")
        page.value("document.querySelector('.scroller').scrollLeft = 0")
        left, top = page.value("(box => [box.left, box.top])(document.getElementById('map').getBoundingClientRect())")
        page.click(left + 2, top + 8)
        page.wait("document.querySelector('#story dl')")
        assert text(page, "#story").startswith("client 0\n\nround 1: Rejected as a sybil")
        buttons = "[...document.querySelectorAll('#clients button')]"
        page.value(f"{buttons}.find(button => button.textContent === {json.dumps(HOSTILE)}).click()")
        page.wait("document.querySelector('#story h2').textContent.includes('onerror')")
        assert HOSTILE in text(page, "#story h2")
        assert page.value("document.title").startswith("99/100")
        assert page.value("document.querySelectorAll('img, main script').length") == 0
        assert fits(page)
        page.picture(tmp_path / "run.png")
        assert (tmp_path / "run.png").stat().st_size > 20_000

    def test_the_page_grows_with_the_run_and_says_when_the_server_is_gone(self, page: Page, folder: Path) -> None:
        with served(page, folder, "net::ERR_") as (server, address):
            page.show(address, 1280)
            page.wait("document.title.startsWith('99/100')")
            with (folder / "rounds.jsonl").open("a") as file:
                file.write(self.odd_round(100).to_json() + "\n")
            (folder / "summary.json").write_text(json.dumps({"interrupted": False}))
            page.wait("document.getElementById('state').textContent === 'finished'")
            assert page.value("document.title").startswith("100/100")
            server.shutdown()
            server.server_close()
            page.wait("document.getElementById('notes').textContent.includes('No answer')")


def test_a_wrong_token_shows_that_one_is_needed(page: Page, tmp_path: Path) -> None:
    write_run(tmp_path / "run", run_config(), 90.0)
    with served(page, tmp_path / "run", "401") as (_, address):
        page.show(address.replace(TOKEN, "wrong"), 390)
        page.wait("document.body.innerText.includes('a token is needed')")


class TestSweep:
    """500 cells, of which one runs, one has failed and one is done."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        outcomes: list[Any] = ["running", "failed", 90.0]
        made = write_sweep(tmp_path / "s", [({"defense": "krum", "seed": k}, one) for k, one in enumerate(outcomes)])
        plan = json.loads((made / "cells.json").read_text())
        more = [{**plan[0], "key": f"{k:064x}", "axes": {"defense": HOSTILE, "seed": k}} for k in range(3, 500)]
        (made / "cells.json").write_text(json.dumps([*plan, *more]))
        return made

    @WIDTHS
    def test_a_sweep_of_500_cells_can_be_searched_and_a_cell_opened(self, page: Page, address: str, width: int) -> None:
        page.show(address, width)
        page.wait("document.querySelectorAll('#squares a').length === 500")
        assert text(page, "#tiles").replace("\n", " ") == "1 running 1 failed 0 begun 1 done 497 not begun"
        assert fits(page)
        for box, value in (("words", "seed=2"), ("only", "done")):
            page.value(f"document.getElementById('{box}').value = '{value}'")
            page.value(f"document.getElementById('{box}').dispatchEvent(new Event('input'))")
        assert text(page, "#cells-rows").split("\t")[:3] == ["defense=krum, seed=2", "done", "4 / 4"]
        page.value("document.querySelector('#cells-rows a').click()")
        page.wait("document.querySelectorAll('#clients tbody tr').length === 10")
        assert text(page, "h1") == "defense=krum, seed=2"
        page.value("document.getElementById('back').click()")
        page.wait("document.querySelectorAll('#squares a').length === 500")


class TestFederation:
    """Two nodes, one of them banned and with a hostile name."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        audit = AuditLog.open(tmp_path / "audit.jsonl")
        for number in (1, 2, 3):
            for client, verdict, counts in (
                ("key:" + "a" * 64, "accepted", [3.0, 1.0]),
                ("key:bb", "rejected", [1.0, 3.0]),
            ):
                row = {"kind": "reply", "round": number, "client": client, "verdict": verdict, "evidence": {}}
                audit.append(
                    {**row, "reason": "accepted" if verdict == "accepted" else "sybil", "reputation_after": counts}
                )
        audit.append(
            {"kind": "decision", "round": 3, "action": "ban", "client": "key:bb", "by": "Ada", "reason": HOSTILE}
        )
        audit.close()
        clients = [ClientStatus(id="key:bb", name=HOSTILE, banned=True)]
        alerts = [Alert(kind="most-rejected", severity="critical", message=HOSTILE, round=3)]
        write_status(tmp_path, FederationStatus(round=3, time=5.0, clients=clients, alerts=alerts))
        return tmp_path

    @WIDTHS
    def test_nodes_reputations_alerts_and_the_audit_are_shown(self, page: Page, address: str, width: int) -> None:
        page.show(address, width)
        page.wait("document.querySelectorAll('#charts svg').length === 1")
        assert f"critical: most-rejected: {HOSTILE}" in text(page, "#alerts")
        assert HOSTILE in text(page, "#clients")
        assert "banned" in text(page, "#clients")
        assert "7 lines, each bound to the one before it." in text(page, "#audit")
        assert HOSTILE in text(page, "#audit")
        page.value("document.getElementById('client-1').click()")
        page.wait("document.querySelector('#story dl')")
        assert "was invited in 3 of 3 rounds, accepted in 0 and rejected in 3 (sybil 3)" in text(page, "#story")
        assert fits(page)
