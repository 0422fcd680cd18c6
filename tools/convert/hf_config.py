"""Reading `config.json`: aliases, defaults, nested text models, and both ways to write rotary parameters down."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ConvertError(ValueError):
    """A checkpoint that cannot be converted faithfully; the message is one sentence for the user."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns the faults that values of unexpected types cause into one that says `what` is malformed."""
    try:
        yield
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, UnicodeError) as e:
        raise ConvertError(f"{what} is malformed: {type(e).__name__}: {e}") from e


class Config:
    """A model's `config.json`.

    `raw` is the dictionary; the entries of its `text_config`, where it has one, count as its own. `defaults` stand in
    for what published files leave out because the model's class has it as a default.
    """

    def __init__(self, raw: dict[str, Any], defaults: dict[str, Any] | None = None):
        flat = raw | (raw.get("text_config") or {})
        self.given = {key: value for key, value in flat.items() if value is not None}
        self.defaults = {key: value for key, value in (defaults or {}).items() if value is not None}

    def get(self, *names: str, default: Any = None) -> Any:
        """The value of the first of `names` that is there and not null; else that of the first with a default."""
        sources = (self.given, self.defaults)
        return next((values[name] for values in sources for name in names if name in values), default)

    def need(self, *names: str) -> Any:
        """As `get`, but one of the names has to be there."""
        value = self.get(*names)
        if value is None:
            raise ConvertError(f"config.json lacks {' or '.join(names)}")
        return value

    def int(self, *names: str) -> int:
        """A whole number that has to be there, and that GGUF's uint32 holds."""
        value = self.need(*names)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**32 or value % 1:
            raise ConvertError(f"{names[0]} in config.json is {value!r}, which is not a whole number below 2^32")
        return int(value)

    def float(self, *names: str) -> float:
        """A number that has to be there."""
        value = self.need(*names)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConvertError(f"{names[0]} in config.json is {value!r}, which is not a number")
        return float(value)

    def flag(self, *names: str) -> bool:
        """Whether a switch is on; off where it is absent."""
        return bool(self.get(*names, default=False))

    def only(self, name: str, *allowed: Any) -> None:
        """Refuses a value that the architecture's GGUF keys cannot express. An absent value is fine."""
        value = self.get(name)
        if value is not None and value not in allowed:
            choices = " or ".join(repr(a) for a in allowed)
            only = f"; only {choices}" if allowed else ""
            raise ConvertError(f"{name} = {value!r} cannot be expressed in this architecture's GGUF files{only}")

    def rope(self, kind: str = "full_attention") -> dict[str, Any]:
        """The rotary parameters of the layers of this `kind`, in the form of transformers 5.

        `rope_type` and `rope_theta` are always set, the latter possibly to None. Older files have `rope_theta` at the
        top, the scaling in `rope_scaling`, and call `rope_type` `type`.
        """
        found = self.get("rope_parameters", "rope_scaling", default={})
        if not isinstance(found, dict):
            raise ConvertError(f"the rotary parameters in config.json are {found!r}, which is not a dictionary")
        nested = found.get(kind)
        rope = dict(nested if isinstance(nested, dict) else found)
        rope["rope_type"] = rope.get("rope_type", rope.get("type", "default")).lower()
        names = {
            "rope_theta": ("rope_theta", "rotary_emb_base"),
            "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent"),
            "original_max_position_embeddings": ("original_max_position_embeddings",),
        }
        for key, aliases in names.items():
            if rope.get(key) is None:
                rope[key] = self.get(*aliases)
        return rope
