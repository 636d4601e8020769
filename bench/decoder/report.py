"""Numbers of a run as text, beside the goals and the baseline."""

from statistics import median

from workloads import NAMES

HEADER = f"{'':<22}{'median, s':>11}{'min, s':>9}{'tokens/s':>11}{'of peak':>9}{'memory, MB':>12}"


def summary(seconds, tokens, operations, peak, memory):
    """What is kept of one contender's times."""
    middle = median(seconds)
    return {
        "seconds": seconds,
        "median": middle,
        "minimum": min(seconds),
        "tokens_per_second": tokens / middle,
        "flops_per_second": operations / middle,
        "share_of_peak": operations / middle / peak,
        "memory_bytes": memory,
    }


def judge(line, contenders, matrix_peak):
    """Every goal of a line with what was reached and whether that meets it."""
    ours, verdicts = contenders["seed"], []
    for against, goal in line.goals.items():
        if against == "matrix peak":
            reached, met = ours["flops_per_second"] / matrix_peak, lambda value: value >= goal
        elif against == "memory":
            theirs = contenders["torch"]["memory_bytes"]
            if not theirs or not ours["memory_bytes"]:
                continue
            reached, met = ours["memory_bytes"] / theirs, lambda value: value <= goal
        elif against in contenders:
            reached, met = contenders[against]["median"] / ours["median"], lambda value: value >= goal
        else:
            continue
        verdicts.append({"against": against, "goal": goal, "reached": reached, "met": met(reached)})
    return verdicts


def print_line(name, result, before):
    """A line's contenders, then its verdicts, then the change against the baseline."""
    print(f"\n{name:<22}{HEADER[22:]}")
    ours = result["contenders"]["seed"]["median"]
    for contender, numbers in result["contenders"].items():
        memory = f"{numbers['memory_bytes'] / 1e6:,.0f}" if numbers["memory_bytes"] else "-"
        ratio = "" if contender == "seed" else f"{numbers['median'] / ours:>8.2f}x"
        print(
            f"  {NAMES.get(contender, contender):<20}{numbers['median']:>11.4f}{numbers['minimum']:>9.4f}"
            f"{numbers['tokens_per_second']:>11,.0f}{numbers['share_of_peak']:>9.1%}{memory:>12}{ratio}"
        )
    for verdict in result["goals"]:
        print(f"  {describe(verdict)}")
    if before:
        was = before["contenders"]["seed"]["median"]
        print(f"  baseline: {was:.4f} s, this run takes {ours / was - 1:+.1%}", end="")
        for contender, numbers in before["contenders"].items():
            if contender != "seed" and contender in result["contenders"]:
                now = result["contenders"][contender]["median"] / ours
                print(f"; {NAMES[contender]} {numbers['median'] / was:.2f}x -> {now:.2f}x", end="")
        print()


def describe(verdict):
    """A verdict in words."""
    against, goal, reached = verdict["against"], verdict["goal"], verdict["reached"]
    mark = "met" if verdict["met"] else "NOT MET"
    if against == "matrix peak":
        return f"goal: {goal:.0%} of the matrix peak; reached {reached:.0%}: {mark}"
    if against == "memory":
        return f"goal: at most {goal:.0%} of PyTorch's memory; reached {reached:.0%}: {mark}"
    return f"goal: {goal:.2f}x {NAMES.get(against, against)}; reached {reached:.2f}x: {mark}"
