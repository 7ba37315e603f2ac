"""What the names in the records mean: files of a run, fields of ``summary.json`` and ``manifest.json``, and events."""

from __future__ import annotations

from collections.abc import Mapping

FOLDER: Mapping[str, str] = {
    "config.toml": "All settings, the defaults too. `mabrfl run config.toml` runs them again.",
    "manifest.json": "What is needed to repeat the run: versions, seed, data, commit.",
    "rounds.jsonl": "A line of JSON per finished round.",
    "summary.json": "The run in a few numbers, written at its end.",
    "accuracy.png, accuracy.svg": "The accuracy over the rounds; `--no-plots` leaves pictures out.",
    "clients.png, clients.svg": "Every client in every round: selected or not, accepted or rejected and why.",
    "checkpoint/": "The newest two states of an unfinished run, from which it goes on.",
    "model.safetensors": "The final model, with `--save-model`.",
}

SUMMARY: Mapping[str, str] = {
    "dataset": "The data set.",
    "model": "The model.",
    "defense": "The defense.",
    "preset": "The preset, also where a defense has none.",
    "selector": "The selector.",
    "attack": "The attack.",
    "seed": "The seed.",
    "final_accuracy": "Accuracy on the test set after the last round, in percent.",
    "mean_last10": "Mean accuracy of the last 10 rounds.",
    "best_accuracy": "The highest accuracy of any round.",
    "final_loss": "Mean loss on the test set after the last round.",
    "attack_success": "Percent of the attack's goal that the final model reaches; null if the attack has no goal.",
    "rounds": "Finished rounds.",
    "rounds_planned": "Rounds that the settings ask for.",
    "detection_precision": "Share of the rejected updates that came from attackers; null if none was rejected.",
    "detection_recall": "Share of the attackers' updates that were rejected; null without attackers.",
    "honest_rejected_rate": "Share of the honest updates that were rejected.",
    "detection": "The counts: `caught`, `missed`, `honest_rejected` and `honest_accepted` updates.",
    "selection_rate_honest": "Mean share of rounds in which an honest client was selected.",
    "selection_rate_malicious": "Mean share of rounds in which an attacker was selected.",
    "malicious_selections": "How often an attacker was selected, over all rounds.",
    "clients": "Number of clients.",
    "attackers": "Ids of the attackers.",
    "seconds": "Time of all sessions of the run.",
    "config_hash": "The key of the run: SHA-256 of what makes its result.",
    "interrupted": "Whether the run ended before its last round.",
}

MANIFEST: Mapping[str, str] = {
    "versions": "Versions of mabrfl, Python and the packages that compute.",
    "platform": "The operating system.",
    "machine": "The kind of processor.",
    "cpu_count": "Number of cores.",
    "seed": "The seed.",
    "config_hash": "The key of the run.",
    "data_fingerprint": "SHA-256 of the data set's arrays.",
    "source": "Commit of the checkout and whether files differ from it; null if mabrfl was installed from elsewhere.",
    "code": "Fingerprints of your own `module:Name`; only if the run uses any.",
    "arguments": "The command line; of absolute paths only the last part.",
    "started": "When it began (UTC).",
    "ended": "When it ended; null before.",
    "resumed": "Only after a restart: when, after which round, with which versions.",
}

EVENTS: Mapping[str, str] = {
    "warm-up": "The selector invites everybody in the first rounds.",
    "empty-selection": "The selector drew nobody; a random subset, or everybody, is invited instead.",
    "not-selected-ignored": "So many updates came from clients that were not invited. They are not used.",
    "no-usable-updates": "Nobody sent a well-formed update. The model stays.",
    "step-not-finite": "The weights or the step of the rule were not finite. The model stays.",
    "most-rejected": "More than half of the updates were rejected. With Flower's `max_rejected` the round is skipped.",
    "RULE-precondition": "The theorem of the rule asks for more clients than there are; `strict` makes it an error.",
    "no-survivors": "Presets `paper` and `reference`: everybody was rejected. The model stays.",
    "equal-clusters": "Presets `paper` and `reference`: the two clusters are of one size.",
    "majority-guard": "Preset `hardened`: too many clients look like copies. Only exact copies count as such, or none.",
    "majority-present": "Preset `hardened`: at least half of those present are rejected, so nobody is blamed for it.",
    "nobody-left": "Preset `hardened`: all would be rejected. All are accepted, and nobody is blamed.",
    "new-identities": "So many attackers come back under new ids (attack `whitewash`).",
    "no-examples": "FedAvg: no client reports examples, so all weigh the same.",
    "foolsgold-all-alike": "FoolsGold: all updates are alike, so all weigh the same.",
    "signguard-disjoint": "SignGuard: its two filters keep nobody in common. Only the norm filter is used.",
    "dnc-empty-intersection": "DnC: no client is kept by all its samples. Those with the lowest scores are kept.",
    "lasa-nobody-passed": "LASA: nobody passed a layer's filter. All are averaged there.",
    "alignins-nobody-kept": "AlignIns: nobody passed. Those nearest to the medians are averaged.",
    "fltrust-nobody-trusted": "FLTrust: nobody points in the direction of the server's own update. The model stays.",
    "banned": "Flower: so many banned nodes were left out.",
    "identity-used-twice": "Flower: nodes with the same identity were left out.",
    "identity-unknown": "Flower: nodes without an identity were left out.",
    "too-few-replies": "Flower: fewer good replies than the strategy needs. The round is not judged.",
    "too-few-accepted": "Flower: fewer accepted replies than `min_accepted`. The round is skipped.",
    "quorum": "Flower: a strict rule refused to judge so few replies. The model stays.",
    "model-not-finite": "Flower: the step would make the model not finite. The model stays.",
}
"""Events of a round by their first word; after a colon an event has numbers. RULE stands for the name of a rule."""
