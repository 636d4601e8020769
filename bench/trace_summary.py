#!/usr/bin/env python3
"""Sums a trace of `seed --profile` by name.

    python3 bench/trace_summary.py trace.json [--within iteration] [--number 2] [--phases] [--thread main] [--markdown]

For each name: how often, total time, self time (total without the spans within it on the same thread) and the self
time's share of the wall time looked at, over all threads. `--within NAME` looks at what happens, on every thread, while a
span of that name runs; `--number N` takes the one whose argument `number` is N. `--phases` spreads self times over the
phases in which they fall, in milliseconds.

A thread that shares work with others waits inside its span until they are done, so the self time of such a span is
waiting rather than work: the last column but one says `waits`. Threads work side by side, so shares add up to more than
one.
"""

import argparse
import json
import sys
from bisect import bisect_right
from collections import defaultdict

# Spans that do nothing but share work.
WAITING = {"engine_step", "score", "attend", "attend_backward", "pack"}
# Nanoseconds are whole, microseconds as floats are not.
TINY = 1e-3


def read(path):
    """The events of a trace; one that was never closed, as of a killed process, is closed here."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        whole, _, _ = text.rpartition(",\n")
        return json.loads(whole + "]")


def phase_changes(phases):
    """Moments in order, each with the innermost phase from then on."""
    edges = []
    for span in phases:
        edges.append((span["ts"], 1, -span["dur"], span["name"]))
        edges.append((span["ts"] + span["dur"], 0, 0, span["name"]))
    edges.sort()
    moments, names, stack = [], [], []
    for moment, begins, _, name in edges:
        if begins:
            stack.append(name)
        else:
            stack.pop()
        moments.append(moment)
        names.append(stack[-1] if stack else "(none)")
    return moments, names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--within", help="look at spans of this name only, and what runs meanwhile")
    parser.add_argument("--number", type=int, help="the argument `number` of the span looked at")
    parser.add_argument("--phases", action="store_true", help="a column for every phase")
    parser.add_argument("--thread", help="only threads whose names begin so")
    parser.add_argument("--markdown", action="store_true", help="a table for a page")
    parser.add_argument("--least", type=float, default=0.1, help="least share of wall time shown, in percent")
    options = parser.parse_args()

    events = read(options.trace)
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    if not spans:
        sys.exit("the trace has no spans")
    start, end = min(span["ts"] for span in spans), max(span["ts"] + span["dur"] for span in spans)
    if options.within:
        wanted = [
            span
            for span in spans
            if span["name"] == options.within and options.number in (None, span["args"].get("number"))
        ]
        if not wanted:
            sys.exit(f"the trace has no such span `{options.within}`")
        start, end = wanted[0]["ts"], wanted[0]["ts"] + wanted[0]["dur"]
        spans = [
            span for span in spans if start - TINY <= span["ts"] and span["ts"] + span["dur"] <= end + TINY
        ]
    wall = end - start
    moments, phase_names = phase_changes([span for span in spans if span["cat"] == "phase"])

    total, own, count, kind = defaultdict(float), defaultdict(float), defaultdict(int), {}
    by_phase, busy, waited = defaultdict(float), defaultdict(float), defaultdict(float)
    by_thread = defaultdict(list)
    for span in spans:
        if threads.get(span["tid"], "").startswith(options.thread or ""):
            by_thread[span["tid"]].append(span)

    def ended(thread, span):
        name, rest = span["name"], span["dur"] - span["within"]
        waits = name in WAITING
        own[name] += rest
        kind[name] = "waits" if waits else span["cat"]
        (waited if waits else busy)[thread] += rest
        place = bisect_right(moments, span["ts"] + span["dur"] / 2) - 1
        by_phase[name, phase_names[place] if place >= 0 else "(none)"] += rest

    for thread, members in by_thread.items():
        members.sort(key=lambda span: (span["ts"], -span["dur"]))
        stack = []
        for span in members:
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= span["ts"] + TINY:
                ended(thread, stack.pop())
            span["within"] = 0.0
            if stack:
                stack[-1]["within"] += span["dur"]
            # A span within another of its name is part of its total already.
            if all(outer["name"] != span["name"] for outer in stack):
                total[span["name"]] += span["dur"]
            count[span["name"]] += 1
            stack.append(span)
        while stack:
            ended(thread, stack.pop())

    print(f"{wall / 1e6:.3f} s of wall time, {sum(count.values())} spans")
    for thread in sorted(by_thread):
        work, wait = busy[thread] / wall, waited[thread] / wall
        print(f"  {threads.get(thread, thread)}: works {work:.1%}, waits {wait:.1%} of the time")
    print()
    phases = []
    if options.phases:
        sums = defaultdict(float)
        for (_, phase), time in by_phase.items():
            sums[phase] += time
        order = [phase for phase in dict.fromkeys(phase_names) if phase in sums]
        phases = [phase for phase in order if sums[phase] > wall / 1000]
    heads = ["name", "count", "total ms", "self ms", *phases, "kind", "share"]
    rows = []
    for name in sorted(own, key=lambda name: -own[name]):
        share = own[name] / wall
        if share * 100 >= options.least:
            cells = [f"{by_phase[name, phase] / 1e3:.0f}" if by_phase[name, phase] else "" for phase in phases]
            shown = f"`{name}`" if options.markdown else name
            rows.append(
                [shown, str(count[name]), f"{total[name] / 1e3:.1f}", f"{own[name] / 1e3:.1f}", *cells]
                + [kind[name], f"{share:.1%}"]
            )
    if options.markdown:
        print("| " + " | ".join(heads) + " |\n|---|" + "--:|" * (len(heads) - 3) + "---|--:|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
    else:
        widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
        for row in [heads, *rows]:
            print(row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:])))


if __name__ == "__main__":
    main()
