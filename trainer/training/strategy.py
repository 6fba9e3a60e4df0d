"""This machine's devices -> the strategy that spreads a run over them: the same code for a CPU, one GPU or several."""

import os
from pathlib import Path
from typing import Final

import tensorflow as tf

# Flags of CPUs that can multiply bfloat16; others convert every number to float32 and back.
_BFLOAT16_UNITS: Final = {"avx512_bf16", "amx_bf16", "bf16"}
# The flag of CPUs on which our network was measured to train 1.4 to 1.6 times as fast in bfloat16
# (docs/decisions/0107).
_MEASURED_UNITS: Final = "avx512_bf16"


def make_strategy(replicas: int) -> tf.distribute.Strategy:
    """All GPUs of this machine, or `replicas` logical devices of its CPU if there is no GPU.

    If `replicas` is above 1 and there is no GPU, call it before TensorFlow has looked at its devices.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return tf.distribute.MirroredStrategy([f"/gpu:{index}" for index in range(len(gpus))])
    if replicas > 1 and len(tf.config.list_logical_devices("CPU")) < replicas:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    # Not ring collectives, the default for CPUs: with 4 replicas on few threads they deadlocked.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)], cross_device_ops=reduction)


def gains_by_precision(precision: str, backbone: str, cpu_flags: frozenset[str] | None = None) -> bool:
    """Whether this machine can be expected to train faster in `precision` (a Keras policy) than in float32.

    Args:
        precision: `float32`, `mixed_float16` or `mixed_bfloat16`.
        backbone: The network's. The depthwise convolutions of published ones take longer in bfloat16 on a CPU.
        cpu_flags: The processor's flags; None reads them.
    """
    if precision == "float32" or tf.config.list_physical_devices("GPU"):
        return True
    flags = _cpu_flags() if cpu_flags is None else cpu_flags
    return precision == "mixed_bfloat16" and backbone == "conv" and bool(_BFLOAT16_UNITS & flags)


def usual_precision(backbone: str, cpu_flags: frozenset[str] | None = None) -> str:
    """The default precision of a run: `mixed_bfloat16` where that was measured to be faster, otherwise `float32`.

    Args:
        backbone: The network's backbone.
        cpu_flags: The processor's flags; None reads them.
    """
    is_plain = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0"  # TensorFlow without the kernels that use those units
    if backbone != "conv" or is_plain or tf.config.list_physical_devices("GPU"):
        return "float32"
    flags = _cpu_flags() if cpu_flags is None else cpu_flags
    return "mixed_bfloat16" if _MEASURED_UNITS in flags else "float32"


def _cpu_flags() -> frozenset[str]:
    """The processor's flags (x86) or features (ARM), as Linux lists them; none on other systems."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    named = (line.partition(":") for line in lines)
    return frozenset(
        flag for name, _, flags in named if name.strip() in ("flags", "Features") for flag in flags.split()
    )
