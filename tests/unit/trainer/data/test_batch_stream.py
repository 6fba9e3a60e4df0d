from dataclasses import replace

import tensorflow as tf

from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import training_set
from trainer.data.batch_stream import BatchStream

STEPS = 8


def numbered(first: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(first, 1000)


def stream(mosaic_until: float) -> BatchStream:
    plain = replace(training_set(drawn_examples(2), batch=2), batches=numbered)
    opening = replace(plain, opening=lambda first: numbered(first).map(lambda step: -step))
    return BatchStream(opening, tf.distribute.get_strategy(), mosaic_until)


def test_mosaics_end_after_their_share_of_the_steps_and_no_step_is_left_out() -> None:
    one = stream(0.75)
    assert [int(one.batch(step, step / STEPS)) for step in range(STEPS)] == [0, -1, -2, -3, -4, -5, 6, 7]


def test_a_stream_begun_later_gives_the_same_batches() -> None:
    later = stream(0.75)
    assert [int(later.batch(step, step / STEPS)) for step in range(4, STEPS)] == [-4, -5, 6, 7]


def test_a_schedule_that_is_shortened_ends_the_mosaics_at_once() -> None:
    one = stream(0.5)
    assert [int(one.batch(step, step / (100 if step < 3 else 4))) for step in range(5)] == [0, -1, -2, 3, 4]


def test_without_mosaics_there_is_one_stream() -> None:
    one = BatchStream(
        replace(training_set(drawn_examples(2), batch=2), batches=numbered), tf.distribute.get_strategy(), 0.75
    )
    assert [int(one.batch(step, step / STEPS)) for step in range(STEPS)] == list(range(STEPS))
