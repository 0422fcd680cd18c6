"""The architectures, one family a module. A new one is a module here and a line in `ALL`."""

from typing import Any

from hf_config import ConvertError

from . import ernie, falcon, gemma, gpt2, gpt_neox, gpt_oss, granite, hunyuan, llama, llama_like, more, olmo, phi, qwen
from . import sigmoid_moe, stablelm
from .base import Architecture

ALL: tuple[type[Architecture], ...] = (
    llama.Llama,
    qwen.Qwen2,
    qwen.Qwen3,
    qwen.Qwen2Moe,
    qwen.Qwen3Moe,
    gemma.Gemma,
    gemma.Gemma2,
    gemma.Gemma3,
    gpt2.Gpt2,
    phi.Phi2,
    phi.Phi3,
    stablelm.StableLm,
    falcon.Falcon,
    gpt_neox.GptNeoX,
    gpt_oss.GptOss,
    olmo.Olmo2,
    olmo.Olmoe,
    granite.Granite,
    granite.GraniteMoe,
    llama_like.SmolLm3,
    llama_like.Arcee,
    llama_like.Mistral3,
    llama_like.MiniCpm,
    llama_like.InternLm2,
    llama_like.Exaone,
    llama_like.Exaone4,
    more.Starcoder,
    more.Starcoder2,
    more.CommandR,
    more.Cohere2,
    more.Nemotron,
    more.SeedOss,
    more.Glm4,
    ernie.Ernie,
    ernie.ErnieMoe,
    hunyuan.Hunyuan,
    hunyuan.HunyuanMoe,
    sigmoid_moe.Dots1,
    sigmoid_moe.Glm4Moe,
)


def architecture(config: dict[str, Any]) -> Architecture:
    """The architecture of a `config.json`, by its `model_type`."""
    kind = config.get("model_type")
    for cls in ALL:
        if kind in cls.model_types:
            return cls(config)
    known = ", ".join(sorted(kind for cls in ALL for kind in cls.model_types))
    raise ConvertError(f"model_type {kind!r} is not supported; supported are {known}")
