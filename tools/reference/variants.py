"""Generated models without a Hugging Face model of their own: other files of what a twin computes."""

from dataclasses import dataclass

from edits import Edit, fused_qkv, renamed, split_experts, split_qkv, untied_copy, without_keys
from table import Shape


@dataclass(frozen=True)
class Variant:
    """A file that has to give the logits of the twin `of`."""

    name: str
    of: str
    edit: Edit

    def shape(self, twin: Shape) -> Shape:
        """The edited table."""
        shape = twin.copy(self.name)
        self.edit(shape)
        return shape


VARIANTS = [
    Variant("llama-fused", "llama-bias", fused_qkv),
    # What readers take absent keys for.
    Variant("llama-few-keys", "llama-mha", without_keys(
        "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base",
        "rope.dimension_count", "vocab_size",
    )),
    Variant("llama-head-twice", "llama-gqa", untied_copy),
    # Other names for what Llama computes.
    Variant("baichuan", "llama-mha", renamed("baichuan")),
    Variant("xverse", "llama-mha", renamed("xverse")),
    Variant("qwen2-fused", "qwen2", fused_qkv),
    # Files of before the caps had keys.
    Variant("gemma2-few-keys", "gemma2-usual", without_keys("attn_logit_softcapping", "final_logit_softcapping")),
    Variant("phi2-fused", "phi2", fused_qkv),
    Variant("phi3-split", "phi3", split_qkv),
    Variant("chatglm-fused", "chatglm", fused_qkv),
    Variant("mixtral-split", "mixtral", split_experts),
]
