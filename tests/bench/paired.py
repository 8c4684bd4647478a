"""Differences of paired runs (equal seeds, one thing changed): their mean, the interval of it, and what that shows."""
import math
import statistics

# Student's t, two sides, 95 %, by degrees of freedom from 1 on.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
           2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)


def interval(differences):
    """Mean of the differences, and half the length of its 95 % interval; infinite for one difference."""
    n = len(differences)
    mean = sum(differences) / n
    if n < 2:
        return mean, math.inf
    if n > len(STUDENT) + 1:
        raise ValueError(f"{n} pairs; the table of Student's t ends at {len(STUDENT) + 1}")
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
    return mean, STUDENT[n - 2] * spread / math.sqrt(n)


def verdict(low, high, limit):
    """A loss between low and high against the limit that it may reach."""
    if high <= limit:
        return "within"
    return "worse" if low > limit else "not shown"


def median_interval(values):
    """Median of the values, and the 95 % interval of what it estimates: two of them, by the binomial distribution's normal form."""
    ordered, n = sorted(values), len(values)
    low = int((n - 1.96 * math.sqrt(n)) / 2)
    if low < 1:
        return statistics.median(ordered), -math.inf, math.inf
    return statistics.median(ordered), ordered[low - 1], ordered[n - low]
