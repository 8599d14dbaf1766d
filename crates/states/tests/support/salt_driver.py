"""Applies many state files with real Salt in one process.

usage: salt_driver.py WORK FILE_ROOT PILLAR_ROOT MODE [GRAINS] < names

Prints one line of JSON for each name, with the seconds that it took. MODE is
`apply`, `test` (Salt's noop), `low`, which only renders and orders, or
`states`, which does the same and prints the states. GRAINS is a JSON file with
grains that replace the machine's.
"""
import json
import logging
import os
import sys
import time

work, file_root, pillar_root, mode = sys.argv[1:5]
os.makedirs(work, exist_ok=True)
logging.disable(logging.CRITICAL)

import salt.config  # noqa: E402
import salt.loader  # noqa: E402
import salt.state  # noqa: E402
from salt.utils.datastructures import HashableOrderedDict  # noqa: E402

opts = salt.config.DEFAULT_MINION_OPTS.copy()
opts.update(
    {
        "id": "web1.example.net",
        "file_client": "local",
        "root_dir": work,
        "cachedir": os.path.join(work, "cache"),
        "extension_modules": os.path.join(work, "ext"),
        "pki_dir": os.path.join(work, "pki"),
        "sock_dir": os.path.join(work, "sock"),
        "conf_file": os.path.join(work, "minion"),
        "file_roots": {"base": [file_root]},
        "pillar_roots": {"base": [pillar_root]},
        "log_level": "quiet",
        "fileserver_backend": ["roots"],
        "saltenv": "base",
        "pillarenv": None,
        "enable_fqdns_grains": False,
        "failhard": False,
        "state_events": False,
        "test": mode == "test",
    }
)
for directory in ("cache", "ext", "pki", "sock"):
    os.makedirs(os.path.join(work, directory), exist_ok=True)
opts["grains"] = salt.loader.grains(opts)
if len(sys.argv) > 5:
    with open(sys.argv[5]) as file:
        opts["grains"].update(json.load(file))


def apply(highstate, sls):
    highstate.building_highstate = HashableOrderedDict()
    highstate.iorder = 10000
    state = highstate.state
    state.reset_run_num()
    state.pre = {}
    state.inject_globals = {}
    high, errors = highstate.render_highstate({"base": [sls]})
    if errors:
        return {"errors": errors}
    answer = state.call_high(high)
    if isinstance(answer, list):
        return {"errors": answer}
    return {"states": answer}


def low(highstate, sls):
    highstate.building_highstate = HashableOrderedDict()
    highstate.iorder = 10000
    started = time.perf_counter()
    high, errors = highstate.render_highstate({"base": [sls]})
    state = highstate.state
    high, more = state.reconcile_extend(high)
    errors += more
    errors += state.verify_high(high)
    high, more = state.requisite_in(high)
    errors += more
    high = state.apply_exclude(high)
    if errors and mode == "states":
        return {"errors": [str(error) for error in errors]}
    chunks, more = state.compile_high_data(high)
    seconds = time.perf_counter() - started
    answer = {"errors": errors + more, "seconds": seconds, "count": len(chunks)}
    if mode == "states":
        answer["states"] = [
            f"{chunk['state']}.{chunk['fun']}|{chunk['__id__']}|{chunk['name']}"
            for chunk in chunks
        ]
    return answer


highstate = salt.state.HighState(opts)
highstate.push_active()
for line in sys.stdin:
    name = line.strip()
    if not name:
        continue
    started = time.perf_counter()
    if mode == "states" and "_errors" in highstate.opts["pillar"]:
        print(json.dumps({"sls": name, "errors": ["pillar"]}), flush=True)
        continue
    try:
        only_renders = mode in ("low", "states")
        answer = (low if only_renders else apply)(highstate, name)
    except Exception as error:  # noqa: BLE001
        answer = {"errors": [f"exception: {error!r}"]}
    answer["sls"] = name
    answer.setdefault("seconds", time.perf_counter() - started)
    print(json.dumps(answer, default=str), flush=True)
