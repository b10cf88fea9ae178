"""How fast the CPU was while a program ran, by its own probes (steady_programs/contract.py).

On hosts whose cores other virtual machines use as well, the same code takes half as long again or twice as long for
milliseconds to seconds; what processes take can be compared only where they ran at full pace.
"""
FULL = 1.15  # times what a probe takes at best
NEAR_NS = 12_000_000  # twice as far as probes lie apart


def best(results):
    """What a probe takes at full pace: of all processes of a program on a machine; None without probes."""
    took = sorted(took for one in results for _, took in one.get("paces", []))
    return took[len(took) // 20] if took else None


def slowest(result, start_ns, end_ns):
    """ns of the slowest probe in the time or next to it; None where the next ones are far."""
    paces = result.get("paces", [])
    before = [row for row in paces if row[0] <= start_ns][-1:]
    behind = [row for row in paces if row[0] >= end_ns][:1]
    inside = [row for row in paces if start_ns < row[0] < end_ns]
    if not before or not behind or start_ns - before[0][0] > NEAR_NS or behind[0][0] - end_ns > NEAR_NS:
        return None
    return max(took for _, took in before + inside + behind)


def full(slowest_ns, best_ns):
    return slowest_ns is not None and best_ns is not None and slowest_ns <= FULL * best_ns
