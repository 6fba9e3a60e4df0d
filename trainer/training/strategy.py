"""This machine's devices -> the strategy that a run is spread by: one code for a CPU, a GPU and several."""

import os
from pathlib import Path
from typing import Final

import tensorflow as tf

# Flags of CPUs that multiply bfloat16 at all; others convert every number to float32 and back.
_BFLOAT16_UNITS: Final = {"avx512_bf16", "amx_bf16", "bf16"}
# Where our network was measured to train 1.4 to 1.6 times as fast in it (docs/decisions/0107).
_MEASURED_UNITS: Final = "avx512_bf16"


def make_strategy(replicas: int) -> tf.distribute.Strategy:
    """All GPUs of this machine, or `replicas` logical devices of its CPU where there is none.

    Must come before TensorFlow has looked at its devices when `replicas` is above 1 and there is no GPU.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return tf.distribute.MirroredStrategy([f"/gpu:{index}" for index in range(len(gpus))])
    if replicas > 1 and len(tf.config.list_logical_devices("CPU")) < replicas:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    # Not the default for CPUs, ring collectives: with 4 replicas on few threads they deadlocked.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)], cross_device_ops=reduction)


def gains_by_precision(precision: str, backbone: str, cpu_flags: frozenset[str] | None = None) -> bool:
    """Whether this machine can be expected to train faster in `precision` (a Keras policy) than in float32.

    Args:
        precision: `float32`, `mixed_float16` or `mixed_bfloat16`.
        backbone: Of the network. The depthwise convolutions of published ones take longer in bfloat16 on a CPU.
        cpu_flags: Of the processor; None reads them.
    """
    if precision == "float32" or tf.config.list_physical_devices("GPU"):
        return True
    flags = _cpu_flags() if cpu_flags is None else cpu_flags
    return precision == "mixed_bfloat16" and backbone == "conv" and bool(_BFLOAT16_UNITS & flags)


def usual_precision(backbone: str, cpu_flags: frozenset[str] | None = None) -> str:
    """The precision of a run that asks for none: `mixed_bfloat16` where that was measured to be faster, or `float32`.

    Args:
        backbone: Of the network.
        cpu_flags: Of the processor; None reads them.
    """
    is_plain = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0"  # TensorFlow without the kernels that use those units
    if backbone != "conv" or is_plain or tf.config.list_physical_devices("GPU"):
        return "float32"
    flags = _cpu_flags() if cpu_flags is None else cpu_flags
    return "mixed_bfloat16" if _MEASURED_UNITS in flags else "float32"


def _cpu_flags() -> frozenset[str]:
    """Flags (x86) or features (ARM) of the processor, as Linux tells them; none elsewhere."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    named = (line.partition(":") for line in lines)
    return frozenset(
        flag for name, _, flags in named if name.strip() in ("flags", "Features") for flag in flags.split()
    )
