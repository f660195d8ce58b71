"""Two minutes of 50 events a second under every fault, then the oracle is asked what became of them.

    python3 tests/full/rehearsal.py BINARY

Exits with an AssertionError where an event was lost, is in the sink's file twice, or was committed but not journaled.
"""

import collections
import json
import pathlib
import sqlite3
import sys
import tempfile
import time

from common import cpu_s, ledger, memory_mib, records, running, sandbox, stop

RATE = 50
FLOW_S = 120
DRAINED_WITHIN_S = 600

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "every-fault.toml"

# All kinds stay at 2 % but those after which an agent must keep still for longer than the run lasts:
# - a 429 costs a minute and more, each further one twice that: once, in the middle;
# - a refused token costs 5 minutes unless another one is put into its file, which this script does: once;
# - a feed without configuration costs 5 minutes: at 2 % of the commits, and back before the next request.
INSTEAD = {
    'probability = 0.02\nthrottle = { lasting = "5s"': 'nth = 700\nthrottle = { lasting = "5s"',
    'probability = 0.02\nrotate_token = "2s"': 'nth = 300\nrotate_token = "for good"',
    'probability = 0.02\nremove_config = "2s"':
        'operations = ["feed.commit"]\nprobability = 0.02\nremove_config = "1ms"',
}


def main(binary):
    with tempfile.TemporaryDirectory() as directory:
        rehearse(binary, pathlib.Path(directory))


def rehearse(binary, directory):
    faults, config, log = (directory / name for name in ("faults.toml", "config.toml", "agent.log"))
    faults.write_text(fault_file())
    arguments = ["--rate", str(RATE), "--count", "0", "--seed", "7", "--faults", faults]
    with sandbox(binary, directory, *arguments) as (base_url, oracle), log.open("w") as out:
        config.write_text(configuration(base_url, directory))
        with running([binary, "run", "-c", config], stdout=out) as agent:
            keep_company(agent, log, directory / "token", FLOW_S)
            lived = ledger(oracle)["events"]
            drained_s = wait_until_committed(agent, oracle, log, directory / "token", len(lived))
            figures = memory_mib(agent)[1], cpu_s(agent)
            stop(agent)
            told = ledger(oracle)
    check(told, lived, directory, records(log))
    report(told, lived, records(log), drained_s, *figures)


def fault_file():
    text = EXAMPLE.read_text()
    for old, new in INSTEAD.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def configuration(base_url, directory):
    """With short first delays: a quarter of all requests fails here, and the run is to end soon."""
    (directory / "token").write_text("token-0\n")
    (directory / "token").chmod(0o600)
    return f"""
        [accounts.rehearsal]
        base_url = "{base_url}"
        app_key = "vtexappkey-rehearsal-ABCDEF"
        app_token = {{ file = "{directory}/token" }}
        [poll]
        interval = "5s"
        [requests]
        per_second = 50
        timeout = "5s"
        [retry]
        base_delay = "100ms"
        [journal]
        path = "{directory}/journal.db"
        [sinks.file]
        type = "file"
        path = "{directory}/orders.jsonl"
    """


def keep_company(agent, log, token, seconds):
    """Does for so long what a person would do: puts another token into the file once the agent says it is refused."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert agent.poll() is None, "the agent ended"
        refused = [r for r in records(log) if r.get("event") == "account.degraded" and r["class"] == "unauthorized"]
        if refused:
            token.write_text(f"token-{len(refused)}\n")
        time.sleep(1)


def wait_until_committed(agent, oracle, log, token, n_events):
    """Seconds until the first events of the ledger are committed; more keep coming meanwhile."""
    started = time.monotonic()
    while left := sum(event["committed_at_ms"] is None for event in ledger(oracle)["events"][:n_events]):
        assert time.monotonic() < started + DRAINED_WITHIN_S, f"{left} events are not committed"
        keep_company(agent, log, token, 2)
    return time.monotonic() - started


def check(told, lived, directory, log):
    envelopes = [json.loads(line) for line in (directory / "orders.jsonl").read_text().splitlines()]
    ids = collections.Counter(envelope["id"] for envelope in envelopes)
    delivered = collections.Counter(envelope["data"]["event"]["eventId"] for envelope in envelopes)
    twice = [found for counter in (ids, delivered) for found, n in counter.items() if n > 1]
    assert not twice, f"{len(twice)} events are in the file twice: {twice[:3]}"

    lost = {event["event_id"] for event in lived} - delivered.keys()
    assert not lost, f"{len(lost)} events are not in the file: {sorted(lost)[:3]}"

    with sqlite3.connect(f"file:{directory}/journal.db?mode=ro", uri=True) as journal:
        journaled = {json.loads(item)["eventId"] for (item,) in journal.execute("SELECT item FROM events")}
    committed = {event["event_id"] for event in told["events"] if event["committed_at_ms"] is not None}
    assert committed <= journaled, f"{len(committed - journaled)} events were committed before they were journaled"

    # What was under way when the 429 was answered arrives with it.
    late = [request for request in told["penalized"] if request["after_ms"] > 1_000]
    assert not late, f"requests within a pause: {late[:3]}"
    assert all(told["faults"]), f"faults that never happened: {told['faults']}"


def report(told, lived, log, drained_s, high_mib, cpu):
    events = collections.Counter(record.get("event") for record in log)
    requests = sum(told["requests"].values())
    print(f"{len(lived)} events in {FLOW_S} s, the last of them committed {drained_s:.0f} s later: none lost, none twice")
    print(f"{requests} requests, {sum(told['faults'])} faults, {told['throttled']} times 429; {told['committed']} commits")
    names = ("request.failed", "request.recovered", "commit.rejected", "account.degraded", "account.recovered",
             "rate_limit.paused", "circuit.opened")
    print(", ".join(f"{events[name]} {name}" for name in names))
    print(f"at most {high_mib:.0f} MiB, {cpu:.1f} s of CPU")


if __name__ == "__main__":
    main(*sys.argv[1:])
