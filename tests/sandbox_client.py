"""A client of the sandbox that shares no code with it: Python's standard library only.

    python3 sandbox_client.py BASE_URL ORACLE_URL STALE

The sandbox holds 500 events for every app key and hides received ones for an hour; STALE is the fate of stale handles that it was started with: ignored,
deleted or refused. Exits with an AssertionError where the sandbox does not behave as VTEX is documented to.
"""

import base64
import json
import sys
import urllib.error
import urllib.request

EVENTS = 500
VISIBILITY_S = 3600

# Whatever proxy the environment names, the sandbox is here.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Feed:
    """The feed of one app key."""

    def __init__(self, base_url, app_key):
        self.base_url = base_url
        self.app_key = app_key

    def ask(self, method, path, body=None):
        """Status and body of the answer; an error status is an answer, too."""
        headers = {
            "X-VTEX-API-AppKey": self.app_key,
            "X-VTEX-API-AppToken": "token",
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data, headers, method=method)
        try:
            with HTTP.open(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read()

    def receive(self):
        status, body = self.ask("GET", "/api/orders/feed?maxlot=10")
        assert status == 200, (status, body)
        return json.loads(body)

    def commit(self, items):
        return self.ask("POST", "/api/orders/feed", {"handles": [item["handle"] for item in items]})

    def quantity(self):
        status, body = self.ask("GET", "/api/orders/feed/config")
        assert status == 200, (status, body)
        return json.loads(body)["quantity"]


class Oracle:
    def __init__(self, url):
        self.url = url

    def ledger(self):
        with HTTP.open(self.url + "/ledger") as answer:
            return json.load(answer)

    def advance(self, seconds):
        body = json.dumps({"advance": f"{seconds}s"}).encode()
        HTTP.open(urllib.request.Request(self.url + "/clock", body, method="POST")).close()


def each_event_is_seen_and_committed(feed, oracle):
    seen = {}
    while batch := feed.receive():
        assert len(batch) <= 10
        for item in batch:
            assert item["eventId"] not in seen, "received twice within its lease"
            seen[item["eventId"]] = item["orderId"]
        assert feed.commit(batch) == (200, b"")
    assert len(seen) == EVENTS, len(seen)
    assert feed.quantity() == 0
    events = [event for event in oracle.ledger()["events"] if event["app_key"] == feed.app_key]
    committed = {event["event_id"]: event["order_id"] for event in events if event["committed_at_ms"] is not None}
    assert committed == seen


def an_uncommitted_event_comes_back(feed, oracle):
    first = drain(feed)
    assert len(first) == EVENTS
    assert feed.quantity() == EVENTS, "hidden events count"
    oracle.advance(VISIBILITY_S)
    second = drain(feed)
    assert first.keys() == second.keys()
    for event_id, item in second.items():
        assert item["handle"] != first[event_id]["handle"]
        assert message_id(item) == message_id(first[event_id])


def a_stale_handle_has_the_fate_asked_for(feed, oracle, stale):
    first = feed.receive()[:1]
    oracle.advance(VISIBILITY_S)
    drain(feed)
    before = feed.quantity()
    expected = {"ignored": (200, 0), "deleted": (200, 1), "refused": (400, 0)}[stale]
    status, _ = feed.commit(first)
    assert (status, before - feed.quantity()) == expected, (stale, status)


def drain(feed):
    """All visible events by their eventId; none is committed."""
    events = {}
    while batch := feed.receive():
        events.update((item["eventId"], item) for item in batch)
    return events


def message_id(item):
    claims = item["handle"].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["MessageId"]


def main(base_url, oracle_url, stale):
    oracle = Oracle(oracle_url)
    each_event_is_seen_and_committed(Feed(base_url, "vtexappkey-one-AAAAAA"), oracle)
    an_uncommitted_event_comes_back(Feed(base_url, "vtexappkey-two-AAAAAA"), oracle)
    a_stale_handle_has_the_fate_asked_for(Feed(base_url, "vtexappkey-three-AAAAAA"), oracle, stale)
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
