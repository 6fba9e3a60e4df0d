from trainer.epoch import input_hint


def test_a_busy_accelerator_gets_no_hint() -> None:
    assert input_hint(0.95, 100.0) is None


def test_the_hint_says_by_how_much_the_input_misses_and_what_to_do() -> None:
    hint = input_hint(0.5, 200.0)
    assert hint is not None
    assert "busy 0.50, 0.45 below 0.95" in hint
    assert "400 images/s, the input gave 200" in hint
    assert "2.6 times the cores" in hint
    assert "VOC_CACHE_MB" in hint
