"""A receiver of webhooks that shares no code with the agent: Python's standard library only.

    python3 webhook_receiver.py --secret whsec_… [--secret whsec_…] [--listen 127.0.0.1:0] [--fail-rate 0.1] [--seed 7]
                                [--refuse-subject 1000000000123-01] [--tolerance 300]

The first line on stdout is its address. Then one line of JSON for each request: {"status", "id", "subject", "state",
"sequence", "account", "body"} or, where it was not what it should be, {"status": 401 or 400, "why"}. A request whose
signature is that of any of the secrets is answered with 204, or with 503 where chance (--fail-rate) or its subject
(--refuse-subject, may be repeated) refuses it.
"""

import argparse
import base64
import binascii
import hashlib
import hmac
import json
import random
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY = 16 * 1024 * 1024


class NotGenuine(Exception):
    """Whoever sent this did not know a secret, or sent it long ago."""


def verify(secrets, headers, body, now, tolerance):
    """Standard Webhooks 1.0.0, "Verifying webhook authenticity"."""
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if len(headers.get_all(name, [])) != 1:
            raise NotGenuine(f"not one {name}")
    timestamp = headers["webhook-timestamp"]
    if not (timestamp.isascii() and timestamp.isdigit()) or tolerance < abs(now - int(timestamp)):
        raise NotGenuine("the timestamp is not of now")
    content = f"{headers['webhook-id']}.{timestamp}.".encode() + body
    expected = [hmac.new(secret, content, hashlib.sha256).digest() for secret in secrets]
    for signature in headers["webhook-signature"].split(" "):
        version, _, text = signature.partition(",")
        if version != "v1":
            continue
        try:
            given = base64.b64decode(text, validate=True)
        except binascii.Error:
            continue
        if any(hmac.compare_digest(given, own) for own in expected):
            return
    raise NotGenuine("no signature is right")


def envelope(headers, body):
    """The CloudEvent in the body."""
    if headers.get("content-type") != "application/cloudevents+json":
        raise ValueError("not a CloudEvent in structured mode")
    event = json.loads(body)
    if event["specversion"] != "1.0" or event["id"] != headers["webhook-id"]:
        raise ValueError("not the event that the headers name")
    for name in ("source", "type", "subject", "state", "sequence", "account", "data"):
        if name not in event:
            raise ValueError(f"no {name}")
    return event


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A client that says nothing holds no thread for ever.
    timeout = 60

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit() or MAX_BODY < int(length):
            self.close_connection = True
            return self.answer(400, {"why": "no usable content-length"})
        body = self.rfile.read(int(length))
        options = self.server.options
        try:
            verify(self.server.secrets, self.headers, body, time.time(), options.tolerance)
            event = envelope(self.headers, body)
        except NotGenuine as error:
            return self.answer(401, {"why": str(error)})
        except (ValueError, KeyError, TypeError) as error:
            return self.answer(400, {"why": repr(error)})
        taken = {name: event[name] for name in ("id", "subject", "state", "sequence", "account")}
        with self.server.lock:
            refused = self.server.chance.random() < options.fail_rate or event["subject"] in options.refuse_subject
        self.answer(503 if refused else 204, {**taken, "body": body.decode()})

    def answer(self, status, said):
        # Before the answer, so that whoever has the answer finds the line.
        with self.server.lock:
            print(json.dumps({"status": status, **said}), flush=True)
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # Whoever breaks off, as a client that is killed does, is no error of ours.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def key(secret):
    if not secret.startswith("whsec_"):
        raise argparse.ArgumentTypeError("a secret starts with whsec_")
    return base64.b64decode(secret[len("whsec_"):], validate=True)


def main():
    arguments = argparse.ArgumentParser(description="Takes webhooks and verifies their signatures.")
    arguments.add_argument("--secret", type=key, action="append", required=True)
    arguments.add_argument("--listen", default="127.0.0.1:0")
    arguments.add_argument("--fail-rate", type=float, default=0.0)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--refuse-subject", action="append", default=[])
    arguments.add_argument("--tolerance", type=int, default=300)
    options = arguments.parse_args()
    host, port = options.listen.rsplit(":", 1)
    server = Server((host, int(port)), Receiver)
    server.secrets, server.options = options.secret, options
    server.chance, server.lock = random.Random(options.seed), threading.Lock()
    print("%s:%s" % server.server_address[:2], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
