"""A journal of a million delivered events: what it costs to look one order up, and to prune half of them beside a drain.

    python3 tests/full/million.py BINARY

Exits with an AssertionError where a look-up reads the whole journal, a drained event is missing, or pruning takes what
it must not.
"""

import datetime
import json
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

from common import cpu_s, memory_mib, records, running, sandbox, stop, wait_for

N_EVENTS = 1_000_000
N_SEED = 1_000
N_WAITING = 60_000
PER_SECOND = 100
DAY_MS = 24 * 3600 * 1000
RETENTION_DAYS = 30
# The events are spread over twice the retention, so that pruning takes out half of them.
SPAN_MS = 2 * RETENTION_DAYS * DAY_MS
DONE_WITHIN_S = 1_200


def main(binary):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        with sandbox(binary, directory, "--count", str(N_SEED)) as (base_url, _):
            configure(directory, base_url)
            seed(binary, directory)
        few_s, _ = look_up(binary, directory)
        multiply(directory / "journal.db")
        many_s, _ = look_up(binary, directory)
        print(f"`events list --order`: {many_s * 1e3:.0f} ms of {N_EVENTS:,} events, {many_s / few_s:.1f} times that of {N_SEED:,}")
        assert many_s < 20 * few_s, "the whole journal was read"
        with sandbox(binary, directory, "--count", str(N_WAITING)) as (base_url, _):
            configure(directory, base_url)
            prune_beside_a_drain(binary, directory)


def configure(directory, base_url):
    (directory / "config.toml").write_text(f"""
        [accounts.million]
        base_url = "{base_url}"
        app_key = "vtexappkey-million-ABCDEF"
        app_token = "any"
        [requests]
        per_second = {PER_SECOND}
        [journal]
        path = "{directory}/journal.db"
        retention = "{RETENTION_DAYS}d"
        [sinks.file]
        type = "file"
        path = "{directory}/orders.jsonl"
    """)


def seed(binary, directory):
    """Some events as an agent journals and delivers them."""
    log = directory / "seed.log"
    with log.open("w") as out, running([binary, "run", "-c", directory / "config.toml"], stdout=out) as agent:
        wait_for(log, "(poll.completed)", agent, 120)
        stop(agent)


def multiply(path):
    """More of the same: other orders, older, delivered."""
    now_ms = int(time.time() * 1000)
    with sqlite3.connect(path) as journal:
        (n_kept,) = journal.execute("SELECT count(*) FROM events").fetchone()
        assert n_kept == N_SEED, n_kept
        rows = journal.execute("SELECT account, source, order_id, state, item FROM events").fetchall()
        # The oldest first, as an agent would have journaled them: behind the first ones, which are moved to the end.
        journal.execute("UPDATE events SET seq = seq + ?", (2 * N_EVENTS,))
        n_more = N_EVENTS - N_SEED
        received = lambda n: now_ms - SPAN_MS + n * SPAN_MS // n_more
        number = lambda n: n.to_bytes(16, "big")

        def event(n):
            account, source, order_id, state, item = rows[n % N_SEED]
            # A few events of each order.
            order = f"{order_id}-{n // (4 * N_SEED)}"
            return (n + 1, number(n), account, source, order, state, received(n) * 10**6, received(n), item.replace(order_id, order))

        journal.executemany("INSERT INTO events (seq, id, account, source, order_id, state, current_change_ns,"
                            " received_at_ms, item) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(event, range(n_more)))
        keys = ((received(n) // 3_600_000, number(n), received(n)) for n in range(n_more))
        journal.executemany("INSERT INTO keys (hour, hash, seen_at_ms) VALUES (?, ?, ?)", keys)
        journal.execute("UPDATE sinks SET seq = (SELECT max(seq) FROM events), inode = NULL, length = NULL")
        journal.execute("UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM events) WHERE name = 'events'")


def look_up(binary, directory):
    """Seconds for one order's events by the command line, the median of seven, and its events."""
    with sqlite3.connect(directory / "journal.db") as journal:
        (order,) = journal.execute("SELECT order_id FROM events ORDER BY seq LIMIT 1").fetchone()
    command = [binary, "-c", directory / "config.toml", "events", "list", "--order", order, "--json"]
    times = []
    for _ in range(7):
        started = time.monotonic()
        said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        times.append(time.monotonic() - started)
    events = json.loads(said)
    assert events, said
    return statistics.median(times), events


def prune_beside_a_drain(binary, directory):
    path, log = directory / "journal.db", directory / "agent.log"
    before_mib = path.stat().st_size / 2**20
    samples = []
    with log.open("w") as out, running([binary, "run", "-c", directory / "config.toml"], stdout=out) as agent:
        wait_for(log, "(agent.ready)", agent, 60)
        # Opened only now: a reader beside an agent, as the command line is.
        journal = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        (begins_at,) = journal.execute("SELECT max(seq) FROM events").fetchone()
        started = time.monotonic()
        while not samples or samples[-1][1] < begins_at + N_WAITING or pruned(log) is None:
            assert time.monotonic() < started + DONE_WITHIN_S, f"not done: {samples[-1]}, {pruned(log)}"
            assert agent.poll() is None, "the agent ended"
            (last,) = journal.execute("SELECT max(seq) FROM events").fetchone()
            samples.append((time.time(), last))
            time.sleep(0.1)
        (n_left,) = journal.execute("SELECT count(*) FROM events").fetchone()
        figures = memory_mib(agent)[1], cpu_s(agent)
        stop(agent)
    record = pruned(log)
    # Half of what was there, and an hour's worth more or less.
    n_old = (N_EVENTS - N_SEED) // 2
    assert abs(record["events"] - n_old) < 2_000, record
    assert n_left == N_EVENTS + N_WAITING - record["events"], (n_left, record)
    report(samples, record, before_mib, path.stat().st_size / 2**20, *figures)


def pruned(log):
    return next((r for r in records(log) if r.get("event") == "journal.pruned"), None)


def report(samples, record, before_mib, after_mib, high_mib, cpu):
    """Pruning begins a minute after the start and ends with its record."""
    begin, end = samples[0][0] + 60, epoch(record["timestamp"])
    alone = [s for s in samples if s[0] < begin]
    beside = [s for s in samples if begin <= s[0] <= end]
    drained = next(t for t, last in samples if last == samples[-1][1])
    # The drain may be over before the pruning.
    beside = [s for s in beside if s[0] <= drained]
    print(f"pruned {record['events']:,} events and {record['keys']:,} keys in {end - begin:.0f} s beside a drain of {N_WAITING:,}")
    print(f"the drain: {rate(alone):.0f} events/s before, {rate(beside):.0f} beside the pruning;"
          f" longest standstill {standstill(alone):.1f} s before, {standstill(beside):.1f} s beside it")
    print(f"journal {before_mib:.0f} MiB, {after_mib:.0f} MiB after; at most {high_mib:.0f} MiB resident, {cpu:.0f} s of CPU")


def rate(samples):
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    return (last - first) / (last_at - first_at)


def standstill(samples):
    """The longest time without a new event."""
    changes = [samples[0][0]] + [b[0] for a, b in zip(samples, samples[1:]) if a[1] != b[1]]
    return max((b - a for a, b in zip(changes, changes[1:])), default=0)


def epoch(timestamp):
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


if __name__ == "__main__":
    main(*sys.argv[1:])
