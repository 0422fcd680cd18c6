#!/usr/bin/env python3
"""Derives the constants of cpu/src/math: minimax polynomials (Remez exchange) and split constants.

Needs numpy only. Every coefficient is rounded to float32 from the lowest power up, and the higher ones are refitted
after each rounding, so that the printed error is that of the polynomial with the printed coefficients (evaluated
exactly; the Rust tests measure the whole function in float32).

    python3 tools/math/remez.py
"""

import math
from fractions import Fraction

import numpy as np

PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459")
LN2 = Fraction("0.693147180559945309417232121458176568075500134360255254120680009")


def f32(x):
    return float(np.float32(x))


def remez(f, weight, lo, hi, powers, n_points=20000):
    """Coefficients of the powers that minimise max |weight(x) (f(x) - sum c_k x^k)| on [lo, hi], and that maximum."""
    k = np.arange(n_points)
    grid = (lo + hi) / 2 - (hi - lo) / 2 * np.cos(np.pi * (k + 0.5) / n_points)
    grid = grid[np.abs(grid) > (hi - lo) / 500]  # nearer to 0 the quotients of `fit` are noise
    values = np.array([f(x) for x in grid])
    weights = np.array([weight(x) for x in grid])
    basis = np.stack([grid**p for p in powers], axis=1)
    m = len(powers) + 1
    picked = np.round((1 - np.cos(np.pi * (np.arange(m) + 0.5) / m)) / 2 * (len(grid) - 1)).astype(int)
    for _ in range(60):
        signs = (-1.0) ** np.arange(m) / weights[picked]
        system = np.concatenate([basis[picked], signs[:, None]], axis=1)
        solution = np.linalg.solve(system, values[picked])
        coefficients, level = solution[:-1], abs(solution[-1])
        error = weights * (values - basis @ coefficients)
        # One extremum per run of equal sign. While there are too many, drop the smallest: an end alone, an inner one
        # together with its smaller neighbour, so that signs go on alternating.
        starts = np.flatnonzero(np.diff(np.sign(error))) + 1
        runs = np.split(np.arange(len(grid)), starts)
        extrema = [r[np.argmax(np.abs(error[r]))] for r in runs]
        while len(extrema) > m:
            size = np.abs(error[extrema])
            at = int(np.argmin(size)) if len(extrema) > m + 1 else (0 if size[0] < size[-1] else len(size) - 1)
            if 0 < at < len(size) - 1:
                first = at if size[at + 1] < size[at - 1] else at - 1
                del extrema[first : first + 2]
            else:
                del extrema[at]
        worst = np.max(np.abs(error))
        if len(extrema) < m or worst <= level * 1.0001:
            break
        picked = np.array(extrema)
    return coefficients, worst


def fit(name, f, weight, lo, hi, powers):
    """Prints float32 coefficients, lowest power first."""
    fixed = []
    while len(fixed) < len(powers):
        done = list(zip(powers, fixed))
        rest = powers[len(fixed) :]
        # Divided by the lowest power left: x^k changes its sign at 0, which would hide an alternation there.
        low = rest[0]
        coefficients, worst = remez(
            lambda x: (f(x) - sum(c * x**p for p, c in done)) / x**low,
            lambda x: weight(x) * abs(x) ** low,
            lo,
            hi,
            [p - low for p in rest],
        )
        fixed.append(f32(coefficients[0]))
        if len(fixed) == 1:
            ideal = worst
    grid = np.linspace(lo, hi, 100001)
    worst = max(abs(weight(x) * (f(x) - sum(c * x**p for p, c in zip(powers, fixed)))) for x in grid)
    print(f"{name}: [{lo}, {hi}]  max weighted error 2^{math.log2(worst):.2f} (unrounded 2^{math.log2(ideal):.2f})")
    for p, c in zip(powers, fixed):
        print(f"    x^{p:<2} {np.float32(c)!s:>16}  0x{np.float32(c).view(np.uint32):08x}")


def split(name, value, parts):
    """Prints float32 parts whose sum is value; each is the float32 nearest to what is left."""
    print(name)
    for _ in range(parts):
        part = np.float32(float(value))
        print(f"    {part!s:>16}  0x{part.view(np.uint32):08x}")
        value -= Fraction(float(part))


def main():
    split("ln 2", LN2, 2)
    split("log2 e", 1 / LN2, 1)
    split("pi / 2", PI / 2, 3)
    split("2 / pi", 2 / PI, 1)
    split("sqrt(8 / pi)", Fraction(math.sqrt(8 / math.pi)), 1)
    split("0.044715 sqrt(8 / pi)", Fraction(0.044715 * math.sqrt(8 / math.pi)), 1)

    # exp(r) = 1 + r q(r), relative to expm1(r), which is the answer itself in tanh. The bound is ln(2) / 2 and a
    # little for the rounding of x log2(e).
    quotient = lambda r: math.expm1(r) / r if r else 1.0
    fit("expm1: q", quotient, lambda r: 1 / quotient(r), -0.3466, 0.3466, list(range(6)))

    # sin(r) = r + r^3 s(r^2), relative; cos(r) = 1 - r^2 / 2 + r^4 c(r^2). Wider than pi / 4: trig.rs says why.
    reach = 0.88
    s = lambda z: (math.sin(math.sqrt(z)) / math.sqrt(z) - 1) / z
    c = lambda z: (math.cos(math.sqrt(z)) - 1 + z / 2) / (z * z)
    fit("sin: s(r^2)", s, lambda z: z, 1e-3, reach**2, [0, 1, 2])
    fit("cos: c(r^2)", c, lambda z: z * z, 1e-2, reach**2, [0, 1, 2])

    # erf(x) = x + x p(x^2) below the seam.
    seam = 0.9375
    p = lambda z: math.erf(math.sqrt(z)) / math.sqrt(z) - 1
    fit("erf: p(x^2)", p, lambda z: 1 / (1 + p(z)), 1e-6, seam**2, list(range(6)))
    # erf(x) = 1 - exp(t(x)) above it; an error of t counts erfc(x) / erf(x) times.
    fit(
        "erf: t",
        lambda x: math.log(math.erfc(x)),
        lambda x: math.erfc(x) / math.erf(x),
        seam,
        3.95,
        list(range(7)),
    )


if __name__ == "__main__":
    main()
