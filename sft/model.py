"""A causal language model of transformers, made ready to train on packs.

The model keeps its own code and names, so that what is saved is a checkpoint like any other. Only its
attention is replaced (see attention.py), and its head is applied to target positions alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from agentloop.render.codec import why
from agentloop.render.load import CHECKPOINT
from occupancy.record.errors import InputError, MissingExtra
from sft import attention
from sft.attention import Documents
from sft.loss import linear_cross_entropy, linear_nll
from sft.packing import Pack
from sft.settings import Settings
from sft.world import World


class Objective(nn.Module):
    """The loss of a model on a pack; the root that is sharded, so that the head is gathered with it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pack: DevicePack, scale: Tensor | None) -> tuple[Tensor, Tensor]:
        """(loss times scale, NLL of each target [M] in nats); without a scale only the NLL."""
        model = plain(self.model)
        hidden = model.base_model(
            input_ids=pack.ids, position_ids=pack.positions, use_cache=False, documents=pack.documents
        ).last_hidden_state[0]
        weight = model.get_output_embeddings().weight
        chosen = hidden.index_select(0, pack.source)
        if scale is None:
            return hidden.new_zeros(()), linear_nll(chosen, weight, pack.labels)
        loss, nll = linear_cross_entropy(chosen, weight, pack.labels, scale)
        # A pack without targets must still reach every parameter, or other ranks would wait for it.
        return (loss if len(chosen) else loss + hidden.sum().float() * 0.0), nll


class DevicePack:
    """A pack on the device, one sequence a batch."""

    def __init__(self, pack: Pack, *, kernel: str, device: torch.device) -> None:
        def move(values: Any) -> Tensor:
            tensor = torch.from_numpy(values)
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor

        self.ids = move(pack.ids)[None]
        self.positions = move(pack.positions)[None]
        self.source, self.labels = move(pack.source), move(pack.labels)
        self.documents: Documents = attention.documents(pack.bounds, kernel=kernel, device=device)


def load(base: str | Path | Any, settings: Settings, *, hub: bool = False) -> nn.Module:
    """A model from a checkpoint folder, or with random weights from a transformers config.

    hub: whether a name that is no folder may be looked up on the Hugging Face hub.
    """
    try:
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    attention.register()
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    with_attention = {"dtype": dtype, "attn_implementation": attention.NAME}
    if isinstance(base, (str, Path)):
        if not hub and not Path(base).is_dir():
            raise InputError(
                f"base {str(base)!r} is no folder: expected {CHECKPOINT}; a name on the Hugging Face hub "
                f"needs --hub"
            )
        # No code of the checkpoint's own runs, and its weights are read as weights alone.
        safely = {"local_files_only": not hub, "trust_remote_code": False, "weights_only": True}
        try:
            model = AutoModelForCausalLM.from_pretrained(str(base), **safely, **with_attention)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise InputError(
                f"base {str(base)!r} holds no model that can be loaded ({why(error)}): expected {CHECKPOINT}"
            ) from error
    else:
        torch.manual_seed(settings.seed)
        model = AutoModelForCausalLM.from_config(base, **with_attention)
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, name, None) not in (None, 1, 1.0):
            raise InputError(
                f"{base}: its config has {name}, which changes the logits after the head: not supported"
            )
    # With pad == eos, the padding row would be the turn-closing token's, and would get no gradient.
    model.get_input_embeddings().padding_idx = None
    return model


def prepare(model: nn.Module, settings: Settings, world: World) -> Objective:
    """Adapters, kernels, checkpointing, compilation and sharding, in this order."""
    if settings.lora_rank:
        model = _with_lora(model, settings.lora_rank)
    if settings.kernels == "liger":
        _apply_liger(plain(model))
    objective = Objective(model)
    if world.mesh is None:
        # A model that is sharded moves to the device layer by layer: it need not fit on one.
        objective.to(world.device)
    if settings.precision == "fp32_master" and world.mesh is None:
        raise InputError("precision 'fp32_master' works on CUDA only: use 'fp32' here")
    layers = list(decoder_layers(model))
    for layer in layers:
        if settings.checkpointing:
            layer.forward = _checkpointed(layer.forward)
        if settings.kernels == "compile":
            layer.forward = torch.compile(layer.forward)
    if settings.kernels == "compile":
        # Every layer runs the same code; only its parameters differ.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 16)
    if world.mesh is not None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        if settings.precision == "fp32_master":
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for layer in layers:
            fully_shard(layer, mesh=world.mesh, mp_policy=policy, reshard_after_forward=settings.reshard)
        fully_shard(objective, mesh=world.mesh, mp_policy=policy, reshard_after_forward=False)
    return objective


def plain(model: nn.Module) -> Any:
    """The transformers model inside an adapter."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The model's layers."""
    layers = getattr(plain(model).base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise InputError(
            f"{type(plain(model)).__name__} has no list of decoder layers: use a decoder-only model like "
            f"Llama, Qwen or Gemma"
        )
    return layers


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _with_lora(model: nn.Module, rank: int) -> nn.Module:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise MissingExtra("peft", "train") from error
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        # peft still reads a name that transformers has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        return get_peft_model(model, config)


def _apply_liger(model: Any) -> None:
    try:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
    except ImportError as error:
        raise MissingExtra("liger-kernel", "liger") from error
    _apply_liger_kernel_to_instance(model, fused_linear_cross_entropy=False, cross_entropy=False)
