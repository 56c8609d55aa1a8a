"""A stand-in for the `vllm` command: a real process tree that misbehaves on demand.

FAKE_VLLM in its environment is a JSON object:
    refuse: text printed to stderr before exit code 1
    never_ready: stays up and never listens
    engine: true starts a child in the same session, "detached" one that leaves it
    ignore_term: SIGTERM has no effect on the whole tree
    leader_dies: the leader is gone once it was asked something, its engine stays
    exit_zero: ends with code 0 before it is ready
    fails_questions: /health is 200, every question is HTTP 500
    other_name: serves under another name than it was asked to
    flood: megabytes on both outputs
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODES = json.loads(os.environ.get("FAKE_VLLM", "{}"))


def argument(flag):
    return sys.argv[sys.argv.index(flag) + 1]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        name = "somebody-else" if MODES.get("other_name") else argument("--served-model-name")
        if self.path == "/v1/models":
            self.answer(200, {"data": [{"id": name, "max_model_len": 2048}]})
        else:
            self.answer(200, {})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if MODES.get("fails_questions"):
            self.answer(500, {"error": {"message": "EngineCore encountered an issue", "code": 500}})
            return
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        self.answer(200, {"choices": [choice], "usage": usage})
        if MODES.get("leader_dies"):
            os.kill(os.getpid(), signal.SIGKILL)


def sleeper():
    """Start an engine: a child that stays for minutes."""
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    code = (ignore if MODES.get("ignore_term") else "") + "import time; time.sleep(120)"
    detached = MODES["engine"] == "detached"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=detached)


def main():
    if MODES.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODES.get("flood"):
        for stream in (sys.stdout, sys.stderr):
            stream.write(("x" * 999 + "\n") * 3000)
            stream.flush()
    if "refuse" in MODES:
        sys.stderr.write(MODES["refuse"] + "\n")
        sys.exit(1)
    if MODES.get("exit_zero"):
        sys.exit(0)
    if MODES.get("engine"):
        sleeper()
    if MODES.get("never_ready"):
        time.sleep(120)
    server = ThreadingHTTPServer(("127.0.0.1", int(argument("--port"))), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
