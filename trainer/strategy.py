"""This machine's devices -> the strategy that a run is spread by: one code for a CPU, a GPU and several."""

import tensorflow as tf


def make_strategy(replicas: int) -> tf.distribute.Strategy:
    """All GPUs of this machine, else `replicas` logical devices of its CPU.

    Must come before TensorFlow has looked at its devices when `replicas` is above 1 and there is no GPU.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return tf.distribute.MirroredStrategy([f"/gpu:{index}" for index in range(len(gpus))])
    if replicas > 1 and len(tf.config.list_logical_devices("CPU")) < replicas:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    # Not the default for CPUs, ring collectives: with 4 replicas on few threads they waited for one another for ever.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)], cross_device_ops=reduction)
