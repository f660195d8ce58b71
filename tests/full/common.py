"""What the long runs share: processes that end with the run, and the figures of a process. Standard library only."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

# Whatever proxy the environment names, everything here is on loopback.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))

STOPS_WITHIN_S = 60


@contextlib.contextmanager
def running(command, **options):
    """A process that is killed when the run ends, however it ends."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def sandbox(binary, directory, *arguments):
    """A sandbox on free ports; its address and that of its oracle."""
    said = directory / "sandbox.out"
    command = [binary, "sandbox", "--listen", "127.0.0.1:0", "--oracle", "127.0.0.1:0", *arguments]
    with said.open("w") as out, running(command, stdout=out) as process:
        yield wait_for(said, r"sandbox ready on (\S+)", process), wait_for(said, r"oracle ready on (\S+)", process)


def wait_for(path, pattern, process, within_s=30):
    """The first group of the first match in a file that a process writes."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(pattern, path.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(f"no {pattern!r} in {path.name}: {path.read_text()[-2000:]}")


def stop(process):
    """Stops an agent as a service manager does; it must end well."""
    process.send_signal(signal.SIGTERM)
    status = process.wait(STOPS_WITHIN_S)
    assert status == 0, f"the agent ended with {status}"


def ledger(oracle):
    with HTTP.open(oracle + "/ledger") as answer:
        return json.load(answer)


def records(log):
    """The agent's log; the last line may be half written while it runs."""
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def memory_mib(process):
    """Resident memory now and at its highest, in MiB."""
    with open(f"/proc/{process.pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]


def cpu_s(process):
    """Seconds of processor time so far, user and system."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
