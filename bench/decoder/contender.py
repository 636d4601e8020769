"""A contender's process: started once, asked in turn with others, idle in between."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import machine

HERE = Path(__file__).resolve().parent

# Threads that wait must sleep: they would slow whoever is measured next.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}

# Some machines force an old kernel on numpy's library; neither is what a user would have.
FORCED = ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"]


def command(name, programs, adamw="fused"):
    """How a contender is started."""
    python = [sys.executable]
    return {
        "seed": [programs / "seed-bench"],
        "torch": [*python, HERE / "worker_torch.py", "--adamw", adamw],
        "torch-compiled": [*python, HERE / "worker_torch.py", "--adamw", adamw, "--compile"],
        "llama-f32": [*python, HERE / "worker_llama.py", "f32.gguf"],
        "llama-q8": [*python, HERE / "worker_llama.py", "q8_0.gguf"],
    }[name]


class Contender:
    """A process that answers requests. Used with `with`, which ends it."""

    def __init__(self, name, arguments, threads, log):
        environment = {key: value for key, value in os.environ.items() if key not in FORCED}
        environment |= QUIET | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.name = name
        self.threads = threads
        self.log = log
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, what, **request):
        """The answer to one request, as a dictionary."""
        self.process.stdin.write(json.dumps({"do": what, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise RuntimeError(f"{self.name} at `{what}`: {answer['error']} (see {self.log})")
        return answer

    def load(self, directory):
        return self.ask("load", directory=str(directory), threads=self.threads)

    def measure(self, what, **request):
        """An answer, and the share of the machine that other programs used meanwhile."""
        start, busy, own = time.perf_counter(), machine.busy_seconds(), self.processor_seconds()
        answer = self.ask(what, **request)
        own, busy = self.processor_seconds() - own, machine.busy_seconds() - busy
        return answer, max(0.0, busy - own) / (time.perf_counter() - start) / self.threads

    def processor_seconds(self):
        """Of all threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field):
        """`VmRSS` or `VmHWM` in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field + ":")) * 1024

    def forget_highest_memory(self):
        """Sets `VmHWM` back to what is resident now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
