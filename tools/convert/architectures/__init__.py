"""The architectures, one family a module. A new one is a module here and a line in `ALL`."""

from typing import Any

from hf_config import ConvertError

from . import (
    afmoe, arcee, bailing, chatglm, cohere, dots1, ernie, exaone, falcon, gemma, glm4, gpt2, gpt_neox, gpt_oss, granite, hunyuan,
    internlm2, llama, minicpm, minimax_m2, mistral3, nemotron, olmo, phi, qwen, seed_oss, smollm3, stablelm, starcoder,
)
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
    olmo.Olmo,
    olmo.Olmo2,
    olmo.Olmoe,
    granite.Granite,
    granite.GraniteMoe,
    smollm3.SmolLm3,
    arcee.Arcee,
    mistral3.Mistral3,
    minicpm.MiniCpm,
    internlm2.InternLm2,
    exaone.Exaone,
    exaone.Exaone4,
    starcoder.Starcoder,
    starcoder.Starcoder2,
    cohere.CommandR,
    cohere.Cohere2,
    nemotron.Nemotron,
    seed_oss.SeedOss,
    chatglm.ChatGlm,
    glm4.Glm4,
    ernie.Ernie,
    ernie.ErnieMoe,
    hunyuan.Hunyuan,
    hunyuan.HunyuanMoe,
    dots1.Dots1,
    bailing.Bailing,
    afmoe.AfMoe,
    glm4.Glm4Moe,
    minimax_m2.MiniMaxM2,
)


def architecture(config: dict[str, Any]) -> Architecture:
    """The architecture of a `config.json`, by its `model_type`."""
    kind = config.get("model_type")
    for cls in ALL:
        if kind in cls.model_types:
            return cls(config)
    known = ", ".join(sorted(kind for cls in ALL for kind in cls.model_types))
    raise ConvertError(f"model_type {kind!r} is not supported; supported are {known}")
