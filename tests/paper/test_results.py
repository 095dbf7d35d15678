"""Every study of the paper: whole, held out from what was learned in, and committed with the settings in the code."""

import json

import pytest

from paper import (
    ablations,
    class_weights,
    concentration,
    credit_quality,
    credit_runs,
    deep_bonus,
    deep_in_domain,
    deep_inverted,
    deep_runs,
    deep_sb3,
    online,
    source_data,
    transfer_bigger,
    transfer_class_weights,
    transfer_in_domain,
    transfer_inverted,
    transfer_runs,
    transfer_source_data,
    transfer_target_data,
    transfer_window,
    window_size,
)

CREDIT = (credit_quality, source_data, class_weights, concentration, window_size, ablations)
TRANSFER = (
    transfer_in_domain, transfer_bigger, transfer_inverted, transfer_window, transfer_class_weights,
    transfer_source_data, transfer_target_data,
)  # fmt: skip
DEEP = (deep_inverted, deep_in_domain, deep_sb3)
SETTINGS = {
    **dict.fromkeys(CREDIT, credit_runs._settings),
    **dict.fromkeys(TRANSFER, transfer_runs.settings_of),
    **dict.fromkeys(DEEP, deep_runs.settings_of),
    online: online.settings_of,
}


def parts(result):
    return getattr(result, "cells", None) or result.panels


@pytest.mark.parametrize("module", SETTINGS, ids=lambda module: module.__name__)
def test_a_result_is_well_formed_and_the_one_committed_is_of_the_settings_in_the_code(module):
    full, quick = module.result(False), module.result(True)
    assert full.name != quick.name
    for result in (full, quick):
        labels = [part.label for part in parts(result)]
        assert len(set(labels)) == len(labels)
        settings = [SETTINGS[module](part) for part in parts(result)]
        assert json.loads(json.dumps(settings)) == settings
    record = json.loads((credit_runs.RESULTS / f"{full.name}.json").read_text())
    entries, page = record.get("runs") or record["panels"], (credit_runs.RESULTS / f"{full.name}.md").read_text()
    made = [entry["settings"] for entry in entries]
    labels = {entry["label"] for entry in entries}
    earlier = {entry["label"] for entry in entries if '"method"' not in json.dumps(entry["settings"])}
    for part in parts(full):
        if SETTINGS[module](part) not in made and f"## {part.label}\n\nnot run\n" not in page:
            assert part.label in earlier or earlier == labels, "of an earlier method, until it is made again"


@pytest.mark.parametrize("module", [*TRANSFER, *DEEP], ids=lambda module: module.__name__)
def test_committed_tables_are_those_of_the_runs(module):
    path = credit_runs.RESULTS / f"{module.result(False).name}.json"
    page = path.with_suffix(".md").read_text()
    assert all(entry["table"].rstrip() in page for entry in json.loads(path.read_text())["panels"])


def test_held_out_mazes_are_other_mazes():
    for module in CREDIT:
        for cell in module.result(False).cells:
            assert all(target.seed != cell.source.seed for target in cell.targets.values())
            assert cell.episodes is None or cell.episodes <= cell.source.episodes
    for module in TRANSFER:
        assert all(panel.mazes >= 30 and panel.seeds >= 5 for panel in module.result(False).panels)
        assert all(set(transfer_runs.CONDITIONS) <= set(panel.conditions) for panel in module.result(False).panels)
    for first in (transfer_runs.HELD_OUT_LAYOUTS, deep_bonus.LAYOUTS):
        assert deep_runs.SOURCE_LAYOUTS + deep_runs.Deep.source_mazes < first, "no agent was trained in a held-out maze"
    full, *tried = deep_bonus.result(False), deep_bonus.result(True), deep_bonus.development()
    layouts, used = (
        {panel.layout(maze) for result in results for panel in result.panels for maze in range(panel.mazes)}
        for results in ([full], tried)
    )
    assert used <= set(range(100, 108)) and not layouts & used, "options were not chosen on what is judged"
    for panel in full.panels:
        for condition in panel.conditions:
            options = deep_runs.options_of(panel)(**condition.options)
            assert ("fading" in condition.label) == (bool(options.bonus) and options.fade_steps is not None)


def test_held_out_maps_are_other_maps():
    pytest.importorskip("vizdoom")
    pytest.importorskip("stable_baselines3")
    from paper.keys_doors_credit import DEVELOPMENT_MAPS
    from paper.keys_doors_study import HELD_OUT_MAPS

    from paper import keys_doors_bonus, keys_doors_credit, keys_doors_transfer

    for quick, seed, first in (
        (False, keys_doors_credit.HELD_OUT, HELD_OUT_MAPS),
        (True, keys_doors_credit.DEVELOPMENT, DEVELOPMENT_MAPS),  # a quick look does not touch what is held out
    ):
        credit, transfer = (module.result(quick) for module in (keys_doors_credit, keys_doors_transfer))
        assert {(task.source.seed, task.held_out.seed) for task in credit.tasks} == {(keys_doors_credit.SOURCE, seed)}
        assert {panel.study.first_map for panel in transfer.panels} == {first}
    full, tried = (
        {panel.first_map + number for panel in keys_doors_bonus.result(quick).panels for number in range(panel.maps)}
        for quick in (False, True)
    )
    assert not full & tried
