"""A thousand feeds with nothing to do, in one process: what that costs.

    python3 tests/full/idle_feeds.py BINARY
"""

import os
import pathlib
import sys
import tempfile
import time

from common import cpu_s, ledger, memory_mib, records, running, sandbox, stop, wait_for

N_FEEDS = 1_000
MINUTES = 2
# Their first polls are spread over the interval.
WARM_UP_S = 40


def main(binary):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        with sandbox(binary, directory, "--count", "0") as (base_url, oracle):
            watch(binary, directory, base_url, oracle)


def watch(binary, directory, base_url, oracle):
    config, log = directory / "config.toml", directory / "agent.log"
    config.write_text(configuration(base_url, directory))
    environment = {**os.environ, "TOKEN": "any"}
    command = [binary, "run", "-c", config]
    with log.open("w") as out, running(command, stdout=out, env=environment) as agent:
        wait_for(log, "(agent.ready)", agent)
        time.sleep(WARM_UP_S)
        polls, cpu, requests = n_polls(log), cpu_s(agent), n_requests(oracle)
        time.sleep(60 * MINUTES)
        polls, cpu, requests = n_polls(log) - polls, cpu_s(agent) - cpu, n_requests(oracle) - requests
        now, high = memory_mib(agent)
        stop(agent)
    failed = [record for record in records(log) if record["level"] in ("WARN", "ERROR")]
    assert not failed, failed[:3]
    # One poll in 30 s each, a little more for what the poll itself takes.
    assert 0.9 * N_FEEDS * 2 * MINUTES <= polls <= N_FEEDS * 2 * MINUTES, f"{polls} polls in {MINUTES} minutes"
    print(f"{N_FEEDS} idle feeds: {now:.0f} MiB resident, {high:.0f} MiB at most")
    print(f"{cpu / MINUTES:.1f} s of CPU a minute for {polls / MINUTES:.0f} polls, {requests / MINUTES:.0f} requests")


def configuration(base_url, directory):
    feed = '[accounts.feed-{0}]\napp_key = "vtexappkey-store{0}-ABCDEF"\napp_token = {{ env = "TOKEN" }}\nbase_url = "{1}"\n'
    tables = "".join(feed.format(n, base_url) for n in range(N_FEEDS))
    journal = f'[journal]\npath = "{directory}/journal.db"\n'
    sink = f'[sinks.file]\ntype = "file"\npath = "{directory}/orders.jsonl"\n'
    return tables + journal + sink


def n_polls(log):
    return sum(record.get("event") == "poll.completed" for record in records(log))


def n_requests(oracle):
    return sum(ledger(oracle)["requests"].values())


if __name__ == "__main__":
    main(*sys.argv[1:])
