"""A program of a command sink that prints a gigabyte for each event: what that costs the agent.

    python3 tests/full/loud_program.py BINARY
"""

import pathlib
import sys
import tempfile

from common import cpu_s, memory_mib, records, running, sandbox, stop, wait_for

N_EVENTS = 3
PRINTED_BYTES = 2**30
MEMORY_MIB = 64


def main(binary):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        with sandbox(binary, directory, "--count", str(N_EVENTS)) as (base_url, _):
            watch(binary, directory, base_url)


def watch(binary, directory, base_url):
    config, log, taken = (directory / name for name in ("config.toml", "agent.log", "taken"))
    taken.touch()
    config.write_text(configuration(base_url, directory, taken))
    with log.open("w") as out, running([binary, "run", "-c", config], stdout=out) as agent:
        wait_for(taken, r"((?:taken\s+){%d})" % N_EVENTS, agent, 300)
        high, cpu = memory_mib(agent)[1], cpu_s(agent)
        stop(agent)
    bad = [record for record in records(log) if record.get("event") == "delivery.failed"]
    assert not bad, bad
    assert high < MEMORY_MIB, f"{high:.0f} MiB"
    print(f"{N_EVENTS} programs, {PRINTED_BYTES / 2**30:.0f} GiB printed by each: {high:.0f} MiB at most, {cpu:.1f} s of CPU,"
          f" {log.stat().st_size} bytes of log")


def configuration(base_url, directory, taken):
    script = f"cat >/dev/null; head -c {PRINTED_BYTES} /dev/zero | tr '\\\\0' x; echo taken >>{taken}"
    return f"""
        [accounts.loud]
        base_url = "{base_url}"
        app_key = "vtexappkey-loud-ABCDEF"
        app_token = "any"
        [journal]
        path = "{directory}/journal.db"
        [sinks.loud]
        type = "command"
        program = "/bin/sh"
        args = ["-c", "{script}"]
        timeout = "4m"
        concurrency = 1
    """


if __name__ == "__main__":
    main(*sys.argv[1:])
