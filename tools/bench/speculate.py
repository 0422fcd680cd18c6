#!/usr/bin/env python3
"""Time speculative decoding against plain decoding on this machine, in turns, and check that the text is the same.

    speculate.py                     Qwen2.5-Coder 1.5B: plain, --lookup, and drafted for by the 0.5B model
    speculate.py -- --draft-max 16   the same with options of `llamay run` added to the runs that guess

Each round runs every way once, in another order than the round before, each in a process of its own. Ratios are taken
within a round. A table goes to stdout, as Markdown.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

CODE = '''\
import csv


class Account:
    """A bank account with a balance in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        """Add money to the account."""
        if amount <= 0:
            raise ValueError("the amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount, self.balance))

    def withdraw(self, amount):
        """Take money from the account."""
        if amount <= 0:
            raise ValueError("the amount must be positive")
        if amount > self.balance:
            raise ValueError("the balance is too small")
        self.balance -= amount
        self.history.append(("withdraw", amount, self.balance))

    def transfer(self, other, amount):
        """Move money to another account."""
        self.withdraw(amount)
        other.deposit(amount)

    def save(self, path):
        """Write the history as a CSV file."""
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["kind", "amount", "balance"])
            writer.writerows(self.history)
'''

PROMPTS = {
    "edit code": "Rename the method `withdraw` to `take_out` in this code and write out all of it:\n\n"
    f"```python\n{CODE}```",
    "write code": "Write a Python class for a binary search tree with insert, find, delete and in-order traversal.",
    "tell a story": "Tell a story about a fox who learns to swim.",
}


def fetch(name):
    """The path of a model of `tools/fetch.py`, downloaded if it is not there."""
    command = [sys.executable, str(ROOT / "tools" / "fetch.py"), name]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def generate(binary, model, prompt, n_tokens, more):
    """One answer of a process of its own: the object that `llamay run --json` prints."""
    command = [binary, "run", model, prompt, "--json", "--temp", "0", "-n", str(n_tokens), *more]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"speculate.py: {' '.join(command[:3])} exited {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def rounds(ways, n_rounds, ask):
    """All answers by way, in turns; an error if one differs."""
    answers = {way: [] for way in ways}
    for i in range(n_rounds):
        for way in list(ways)[:: 1 if i % 2 == 0 else -1]:
            answers[way].append(ask(ways[way]))
    texts = {tuple(answer["tokens"]) for each in answers.values() for answer in each}
    if len(texts) != 1:
        sys.exit("speculate.py: the text is not the same with and without")
    return answers


def row(name, way, answers):
    """A line of the table."""
    rates = {w: [answer["stats"]["tokens_per_s"] for answer in each] for w, each in answers.items()}
    ratios = [guessed / plain for guessed, plain in zip(rates[way], rates["plain"])]
    drafts = answers[way][0]["stats"]["drafts"]
    share = drafts["accepted_tokens"] / max(drafts["guessed_tokens"], 1)
    return (
        f"| {name} | {way} | {statistics.median(rates['plain']):.1f} | {statistics.median(rates[way]):.1f} "
        f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) "
        f"| {drafts['accepted_per_draft']:.1f} | {share:.0%} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target" / "release" / "llamay"))
    parser.add_argument("--model", help="default: qwen2.5-coder-1.5b")
    parser.add_argument("--draft", help="default: qwen2.5-coder-0.5b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=256, help="tokens of an answer, at the most")
    parser.add_argument("-t", type=int, default=2, help="threads")
    parser.add_argument("more", nargs="*", help="options of the runs that guess")
    args = parser.parse_args()
    model = args.model or fetch("qwen2.5-coder-1.5b")
    draft = args.draft or fetch("qwen2.5-coder-0.5b")
    common = ["-t", str(args.t), "-c", "4096"]
    ways = {"plain": common, "lookup": [*common, "--lookup", *args.more]}
    ways["draft"] = [*common, "--draft", draft, *args.more]
    print("| prompt | guesses | plain | guessed, tokens/s | ratio (least–greatest) | accepted a draft | accepted |")
    print("|---|---|---|---|---|---|---|")
    for name, prompt in PROMPTS.items():
        answers = rounds(ways, args.rounds, lambda more: generate(args.binary, model, prompt, args.n, more))
        for way in list(ways)[1:]:
            print(row(name, way, answers), flush=True)


if __name__ == "__main__":
    main()
