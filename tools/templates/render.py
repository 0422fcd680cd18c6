#!/usr/bin/env python3
"""Render chat templates with Jinja2, set up as the transformers library sets it up, and store what comes out.

The Rust renderer (tokenizer/src/template.rs) is tested against these goldens.

    render.py own                          tests/templates/*.jinja -> own.json, with the full texts
    render.py real FOLDER                  FOLDER/*.jinja -> real.json, with digests only
    render.py show TEMPLATE CASE           print one rendering

Needs jinja2. The cases are in tokenizer/tests/templates/cases.json. Templates of other projects are not stored
in this repository; `real` records the digest of each source too, so that a changed template is noticed.
"""

import argparse
import copy
import hashlib
import json
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

TESTS = Path(__file__).resolve().parents[2] / "tokenizer" / "tests" / "templates"


class Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; its body renders as a call block's would."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(now: datetime) -> jinja2.Environment:
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def render(source: str, suite: dict, case: dict) -> str:
    template = environment(datetime.fromisoformat(suite["now"])).from_string(source)
    messages = copy.deepcopy(case["messages"])
    continued = case.get("continue_final_message", False)
    if continued:
        text = mark_end(messages[-1])
    prompt = template.render(
        messages=messages,
        tools=suite[case["tools"]] if "tools" in case else None,
        documents=None,
        add_generation_prompt=case.get("add_generation_prompt", False),
        bos_token=suite["bos"],
        eos_token=suite["eos"],
        **case.get("variables", {}),
    )
    return cut_at_mark(prompt, text) if continued else prompt


MARK = "CONTINUE_FINAL_MESSAGE_TAG "


def mark_end(message: dict) -> str:
    """Put a mark after the message's text, as transformers does to continue a message; give the text without it."""
    holder, key = message, "content"
    if isinstance(message["content"], list):
        holder, key = next(part for part in reversed(message["content"]) if "text" in part), "text"
    text = holder[key]
    holder[key] = text + MARK
    return text


def cut_at_mark(prompt: str, text: str) -> str:
    """The prompt up to the mark, without the space that a trimming template leaves before it."""
    if text.strip() not in prompt:
        raise ValueError("the template changed the message")
    end = prompt.rindex(MARK.strip())
    return prompt[:end] if prompt[end:].startswith(MARK) else prompt[:end].rstrip()


def outcome(source: str, suite: dict, case: dict, text) -> object:
    """What `text` makes of the rendering, or {"error": the sentence} where Jinja2 raises."""
    try:
        return text(render(source, suite, case))
    except Exception as error:  # a template may raise anything: TypeError, UndefinedError, its own TemplateError
        return {"error": str(error)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("own")
    commands.add_parser("real").add_argument("folder", type=Path)
    show = commands.add_parser("show")
    show.add_argument("template", type=Path)
    show.add_argument("case")
    args = parser.parse_args()

    suite = json.loads((TESTS / "cases.json").read_text())
    if args.command == "show":
        case = next(c for c in suite["cases"] if c["name"] == args.case)
        print(render(args.template.read_text(), suite, case), end="")
        return

    own = args.command == "own"
    goldens = {}
    for path in sorted((TESTS if own else args.folder).glob("*.jinja")):
        source = path.read_text()
        goldens[path.name] = {} if own else {"source": digest(source)}
        for case in suite["cases"]:
            goldens[path.name][case["name"]] = outcome(source, suite, case, str if own else digest)
    target = TESTS / f"{args.command}.json"
    # The errors' words are Python's; that there is one is what counts, so the compact form keeps no words.
    if not own:
        goldens = {t: {c: "error" if isinstance(o, dict) else o for c, o in cs.items()} for t, cs in goldens.items()}
    target.write_text(json.dumps(goldens, indent=1, ensure_ascii=False) + "\n")
    print(f"{target.name}: {len(goldens)} templates x {len(suite['cases'])} cases")


if __name__ == "__main__":
    main()
