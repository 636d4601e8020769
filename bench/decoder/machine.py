"""What kind of machine this is: results are compared within a kind only."""

import os
import platform
import re
from pathlib import Path


def describe(instruction_set):
    """Processor, cores and the instruction set that our kernels use there."""
    fields = {}
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    # Virtual machines often hide the name, so family and model belong to it.
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [fields[key] for key in ["cpu family", "model"] if key in fields]
    return {
        "processor": name,
        "family_and_model": "-".join(numbers),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_set": instruction_set,
        "system": platform.system().lower(),
    }


def busy_seconds():
    """Processor seconds that the whole machine has been busy, those that a host took from it included."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def kind(machine):
    """A file name for machines like this one."""
    name = re.sub(r"\((r|tm)\)|cpu|processor|@.*", "", machine["processor"], flags=re.IGNORECASE)
    text = f"{name} {machine['family_and_model']} {machine['cores']} cores {machine['instruction_set']}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
