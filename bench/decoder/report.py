"""Numbers of a run as text, beside the goals and the baseline."""

from statistics import median

from workloads import NAMES

HEADER = f"{'median, s':>11}{'min, s':>9}{'tokens/s':>11}{'of peak':>9}{'memory, MB':>12}{'ratio':>9}"


def summary(line, answers, operations, peaks, memory):
    """What is kept of one contender's answers to a line."""
    seconds = [answer["decode_seconds" if line.work == "decode" else "seconds"] for answer in answers]
    rate = operations / median(seconds)
    kept = {
        "seconds": seconds,
        "median": median(seconds),
        "minimum": min(seconds),
        "tokens_per_second": line.counted_tokens() / median(seconds),
        "flops_per_second": rate,
        "share_of_peak": rate / peaks["multiply_add"],
        "memory_bytes": memory,
    }
    # Parts of the work that a contender timed apart.
    for part in ["prefill_seconds", "optimiser_seconds"]:
        if part in answers[0]:
            kept[part] = median(answer[part] for answer in answers)
    return kept


def judge(line, contenders, matrix_rates):
    """Every goal of a line with what was reached and whether that meets it."""
    ours, verdicts = contenders["seed"], []
    for against, goal in line.goals.items():
        at_most = against == "memory"
        if against == "matrix peak":
            reached = ours["flops_per_second"] / median(matrix_rates)
        elif against == "memory":
            reached = ours["memory_bytes"] / contenders["torch"]["memory_bytes"]
        else:
            reached = contenders[against]["median"] / ours["median"]
        met = reached <= goal if at_most else reached >= goal
        verdicts.append({"against": against, "goal": goal, "reached": reached, "met": met})
    return verdicts


def for_baseline(result):
    """What a later run is compared with."""
    contenders = {
        name: {key: numbers[key] for key in ["median", "minimum", "memory_bytes"]}
        for name, numbers in result["contenders"].items()
    }
    return {"contenders": contenders, "goals": result["goals"], "disturbance": round(result["disturbance"], 3)}


def print_line(name, result, before):
    """A line's contenders, then its verdicts, then the change against the baseline."""
    print(f"\n{name:<34}{HEADER}")
    ours = result["contenders"]["seed"]["median"]
    for contender, numbers in result["contenders"].items():
        memory = f"{numbers['memory_bytes'] / 1e6:,.0f}" if numbers["memory_bytes"] else "-"
        ratio = "" if contender == "seed" else f"{numbers['median'] / ours:.2f}x"
        rate = f"{numbers['tokens_per_second']:,.0f}" if "tokens_per_second" in numbers else "-"
        share = f"{numbers['share_of_peak']:.1%}" if "share_of_peak" in numbers else "-"
        text = (
            f"  {NAMES[contender]:<32}{numbers['median']:>11.4f}{numbers['minimum']:>9.4f}"
            f"{rate:>11}{share:>9}{memory:>12}{ratio:>9}{parts(numbers)}"
        )
        print(text.rstrip())
    for verdict in result["goals"]:
        print(f"  {describe(verdict)}")
    if result["disturbance"] > 0.05:
        print(f"  disturbed: other programs used up to {result['disturbance']:.0%} of the machine meanwhile")
    if before:
        was = before["contenders"]["seed"]["median"]
        ratios = [
            f"{NAMES[contender]} {numbers['median'] / was:.2f}x -> "
            f"{result['contenders'][contender]['median'] / ours:.2f}x"
            for contender, numbers in before["contenders"].items()
            if contender != "seed" and contender in result["contenders"]
        ]
        print(f"  baseline {was:.4f} s, this run {ours / was - 1:+.1%}; {'; '.join(ratios)}")


def parts(numbers):
    """What was timed apart, in words."""
    if "prefill_seconds" in numbers:
        return f"   prompts {numbers['prefill_seconds']:.3f} s"
    if "optimiser_seconds" in numbers:
        return f"   optimiser {numbers['optimiser_seconds']:.3f} s"
    return "".join(f"   {part} {seconds:.2f} s" for part, seconds in numbers.get("parts", {}).items())


def describe(verdict):
    """A verdict in words."""
    against, goal, reached = verdict["against"], verdict["goal"], verdict["reached"]
    mark = "met" if verdict["met"] else "NOT MET"
    if against == "matrix peak":
        return f"goal: {goal:.0%} of the matrix peak; reached {reached:.0%}: {mark}"
    if against == "memory":
        return f"goal: at most {goal:.0%} of PyTorch's memory; reached {reached:.0%}: {mark}"
    if against == "grpo":
        return f"goal: at most {goal:.2f}x a GRPO iteration; reached {reached:.2f}x: {mark}"
    return f"goal: {goal:.2f}x {NAMES[against]}; reached {reached:.2f}x: {mark}"
