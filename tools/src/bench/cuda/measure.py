"""Requests and times of the peers. They are measured like gradlet, by std-host/examples/bench_cuda.rs."""

import sys
import time

WARM_UP = 10
LEAST = 5.0  # milliseconds


def milliseconds(call, wait):
    """Returns the time of a call and of its work. `wait` waits for what the call returned."""
    start = time.perf_counter()
    wait(call())
    return (time.perf_counter() - start) * 1e3


def once(call, wait):
    """Returns a step that is one call."""
    return lambda: milliseconds(call, wait)


def repeated(call, wait):
    """Returns a step that repeats a call for some milliseconds, then waits. Its time is the mean of the calls."""
    calls = 1

    def many():
        for _ in range(calls - 1):
            call()
        return call()

    def step():
        nonlocal calls
        while True:
            elapsed = milliseconds(many, wait)
            if elapsed >= LEAST:
                return elapsed / calls
            calls *= 2

    return step


def answer(current, make, line):
    """Returns the times of a request. `current` holds the step of the last one."""
    name, steps = line.split()
    if name not in current:
        current.clear()
        work, precision, sizes = name.split("/")
        step = make(work, precision, [int(size) for size in sizes.split("x")])
        for _ in range(min(int(steps), WARM_UP) if step else 0):
            step()
        current[name] = step
    return [current[name]() for _ in range(int(steps) if current[name] else 0)]


def serve(version, make):
    """Prints `ready`, then answers requests until the input ends. `make` returns the step of a request, or None for work that the library
    does not measure: the answer is then an empty line."""
    print("ready", version, flush=True)
    current = {}
    for line in sys.stdin:
        try:
            text = " ".join(map(str, answer(current, make, line)))
        except Exception as error:
            current.clear()
            text = "failed " + " ".join(f"{type(error).__name__}: {error}".split())[:200]
        print(text, flush=True)
