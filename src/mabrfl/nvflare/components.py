"""The aggregator and the controller. They translate between NVFlare's types and :mod:`mabrfl.nvflare.site_rounds`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mabrfl import catalog
from mabrfl.defense import MOST_REJECTED
from mabrfl.errors import ConfigError, extra_needed
from mabrfl.nvflare.site_rounds import SiteRound, SiteRounds
from mabrfl.recording.audit import AUDIT, AuditLog, safe_text

with extra_needed("mabrfl.nvflare"):
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
    from nvflare.app_common.app_constant import AppConstants
    from nvflare.app_common.app_event_type import AppEventType
    from nvflare.app_common.utils.fl_model_utils import FLModelUtils
    from nvflare.app_common.workflows.fedavg import FedAvg

_SITE = "client_name"


class RobustAggregator(ModelAggregator):
    """Any defense of the catalogue as an aggregator of NVFlare.

    It works with NVFlare's ``FedAvg`` (also as the ``aggregator`` of a recipe) and with ``ScatterAndGather``, for sites
    that send models (``FULL``) or their changes (``DIFF``). Each reply is checked by itself against the server's own
    model. Sites are known by the name that NVFlare has authenticated; numbers of examples that they claim are not used.

    Every verdict is in the server's log and, with its evidence, in ``audit.jsonl`` in the folder of the job's run.

    Parameters
    ----------
    defense, defense_options
        A name of ``mabrfl list defenses`` or ``module:Name``, and arguments of its constructor.
    selector, selector_options
        A name of ``mabrfl list selectors`` or ``module:Name``, and arguments of its constructor; the defense's own
        selector by default. Only :class:`RobustFedAvg` lets it select.
    before, before_options
        Pre-aggregators in front of the rule, such as ``"nnm"``, and their options.
    preset, dataset
        Of MAB-RFL; see :class:`mabrfl.MabRfl`. The library's default preset if left out.
    num_malicious, num_clients
        The number of attackers among all sites, and of all sites, for rules that need them.
    seed
        Root of all random choices of the server.
    """

    def __init__(
        self,
        defense: str = "mab-rfl",
        *,
        defense_options: dict[str, Any] | None = None,
        selector: str | None = None,
        selector_options: dict[str, Any] | None = None,
        before: str = "",
        before_options: dict[str, Any] | None = None,
        preset: str | None = None,
        dataset: str | None = None,
        num_malicious: int = 0,
        num_clients: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        # A job's file has the values of these attributes: NVFlare writes them down and calls the constructor with them.
        self.defense, self.defense_options = defense, defense_options
        self.selector, self.selector_options = selector, selector_options
        self.before, self.before_options = before, before_options
        self.preset, self.dataset = preset, dataset
        self.num_malicious, self.num_clients, self.seed = num_malicious, num_clients, seed
        catalog.refuse_truth("defenses", defense)
        if selector is not None:
            catalog.refuse_truth("selectors", selector)
        if "root-data" in catalog.entry("defenses", defense).needs:
            raise ConfigError(f"defense '{defense}' needs clean data at the server, and this aggregator has none")
        built = catalog.build_defense(
            defense,
            selector,
            before=before,
            before_options=before_options or {},
            defense_options=defense_options or {},
            selector_options=selector_options or {},
            preset=preset,
            dataset=dataset,
            num_malicious=num_malicious,
            num_clients=num_clients,
            seed=seed,
        )
        self._rounds = SiteRounds(built)
        self._number = 0
        self._params: Mapping[str, Any] = {}
        self._audit: AuditLog | None = None
        self.last_round: SiteRound | None = None
        """The last finished round, with every verdict."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Follow the job: its folder, the model that is sent to the sites, its end."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            folder = Path(fl_ctx.get_engine().get_workspace().get_run_dir(fl_ctx.get_job_id()))
            self._audit = AuditLog.open(folder / AUDIT)
        elif event_type == AppEventType.BEFORE_TRAIN_TASK:
            self._begin(fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE))
        elif event_type == EventType.END_RUN and self._audit is not None:
            self._audit.close()
            self._audit = None

    def select(self, sites: list[str], current_round: int, at_least: int = 0) -> list[str]:
        """Return the sites that the defense selects for a round; ``current_round`` counts from 0, as in NVFlare."""
        return self._rounds.select(sites, current_round + 1, at_least)

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Take a reply for ``ScatterAndGather``; return whether it is of use."""
        self.fl_ctx = fl_ctx
        site = fl_ctx.get_peer_context().get_identity_name()
        sent_in = shareable.get_cookie(AppConstants.CONTRIBUTION_ROUND)
        if sent_in is not None and sent_in + 1 != self._number:
            self.warning(f"{safe_text(site)}: ignored a reply to round {safe_text(sent_in)}")
            return False
        try:
            model = FLModelUtils.from_shareable(shareable, fl_ctx)
        except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and only its sender must pay)
            model = FLModel(params={}, params_type=ParamsType.FULL)
            self.warning(f"{safe_text(site)}: unreadable reply: {safe_text(error)}")
        model.meta[_SITE] = site
        return self._take(model)

    def accept_model(self, model: FLModel) -> None:
        """Take a reply for ``FedAvg``, which has set the site's name to the one of its task."""
        self._take(model)

    def aggregate_model(self) -> FLModel:
        """Judge the replies; return the change of the model, and the mean metrics of the accepted sites."""
        done = self._rounds.finish()
        self.last_round = done
        for row in done.rows():
            if self._audit is not None:
                self._audit.append(row)
            if row["kind"] == "reply" and row["verdict"] != "accepted":
                why = row.get("detail") or row["reason"]
                self.warning(f"round {done.number}: {row['client']}: {row['verdict']}: {why}")
        counts = ", ".join(f"{name} {value:.6g}" for name, value in done.figures().items())
        self.info(f"round {done.number}: {counts}")
        for event in done.events:
            (self.warning if event.startswith(MOST_REJECTED) else self.info)(f"round {done.number}: {safe_text(event)}")
        step = {name: _like(self._params.get(name), array) for name, array in done.step.items()}
        return FLModel(params_type=ParamsType.DIFF, params=step, metrics=dict(done.metrics) or None)

    def reset_stats(self) -> None:
        """Do nothing: a round begins with the model that is sent."""

    def _begin(self, task: Shareable) -> None:
        number = task.get_header(AppConstants.CURRENT_ROUND)
        if number is not None and number + 1 != self._number:
            self._params, self._number = FLModelUtils.from_shareable(task).params, number + 1
            self._rounds.begin(self._number, self._params)

    def _take(self, model: FLModel) -> bool:
        site = str(model.meta[_SITE])
        full = model.params_type != ParamsType.DIFF
        problem = self._rounds.take(site, model.params, full=full, metrics=model.metrics)
        if problem:
            self.warning(f"{safe_text(site)}: {problem}")
        return not problem


class RobustFedAvg(FedAvg):
    """NVFlare's ``FedAvg``, whose sites a defense selects and judges. A site that fails does not end the job.

    Parameters
    ----------
    aggregator
        The defense.
    num_clients
        At least this many sites are asked in every round, if there are.
    ignore_result_error
        Go on if a site sends an error instead of a result. ``FedAvg`` ends the job by default, so that each site can
        end it.
    args, kwargs
        As for ``FedAvg``.
    """

    def __init__(
        self,
        *args: Any,
        aggregator: RobustAggregator | None = None,
        num_clients: int = 2,
        ignore_result_error: bool = True,
        **kwargs: Any,
    ) -> None:
        aggregator = RobustAggregator() if aggregator is None else aggregator
        if not isinstance(aggregator, RobustAggregator):
            raise ConfigError(f"RobustFedAvg needs a RobustAggregator; got {type(aggregator).__name__}")
        settings = {"num_clients": num_clients, "ignore_result_error": ignore_result_error}
        super().__init__(*args, aggregator=aggregator, **settings, **kwargs)

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Let the defense select the sites of the round."""
        sites = [client.name for client in self.engine.get_clients()]
        chosen: list[str] = self.aggregator.select(sites, self.current_round, num_clients or 0)
        self.info(f"Selected {len(chosen)} of {len(sites)} sites: {chosen}")
        return chosen


def _like(base: Any, array: Any) -> Any:
    """Return an array as a tensor if the model's own is one."""
    return base.new_tensor(array) if hasattr(base, "new_tensor") else array
