"""What every Python contender shares: requests as lines of JSON on standard input, answers on standard output."""

import json
import os
import sys
import time


def serve(handlers):
    """Answers requests until the input ends. `handlers` maps the word under `do` to a function of the other keys."""
    # Libraries print what they like; the answers go to a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request.pop("do")](**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def timed(repeats, body):
    """Mean seconds of so many calls, and the last result."""
    start = time.perf_counter()
    for _ in range(repeats):
        result = body()
    return (time.perf_counter() - start) / repeats, result
