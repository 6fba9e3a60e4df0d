"""Points and shares of the report's own charts."""

import numpy as np

from tests.unit.trainer.evaluation.test_curves import detections, truth
from trainer.evaluation.curves import Curve, curve
from trainer.reporting.charts import MOST_PANELS, class_panels, size_bars, training_panels


def some_curve() -> Curve:
    seen = {1: detections((0, 0, 10, 10, 1, 0.9), (50, 50, 60, 60, 1, 0.8), (20, 0, 30, 10, 1, 0.7))}
    return curve(seen, {1: truth((0, 0, 10, 10, 1), (20, 0, 30, 10, 1))}, 1)


def test_precision_is_that_of_a_recall_or_a_higher_one() -> None:
    (panel,) = class_panels({"a": some_curve()}, {"a": 0.8})
    assert panel.points == "0.0,0.0 50.0,0.0 50.0,33.3 100.0,33.3 100.0,100.0"


def test_classes_come_worst_first_and_without_those_that_nobody_measured() -> None:
    curves = {name: some_curve() for name in ("good", "bad", "absent")}
    assert [panel.label for panel in class_panels(curves, {"good": 0.9, "bad": 0.1, "absent": None})] == ["bad", "good"]


def test_of_many_classes_only_the_worst_and_the_best_have_a_panel() -> None:
    curves = {str(at): some_curve() for at in range(60)}
    labels = [panel.label for panel in class_panels(curves, {str(at): at / 60 for at in range(60)})]
    assert len(labels) == MOST_PANELS
    assert (labels[0], labels[-1]) == ("0", "59")


def test_class_never_seen_has_an_empty_line() -> None:
    nothing = curve({1: detections()}, {1: truth((0, 0, 9, 9, 1))}, 1)
    assert class_panels({"a": nothing}, {"a": 0.0})[0].points == ""


def test_thousands_of_detections_are_some_points() -> None:
    steps = np.linspace(0, 1, 5000)
    many = Curve(
        scores=steps[::-1].astype(np.float32), recall=steps, precision=1 - steps / 2, f1=steps, best_f1=1, best_score=0
    )
    points = class_panels({"a": many}, {"a": 0.8})[0].points.split()
    assert len(points) <= 90
    assert points[-1] == "100.0,100.0"


def test_training_lines_start_where_they_were_measured() -> None:
    history = [{"epoch": 1.0, "loss": 4.0}, {"epoch": 2.0, "loss": 2.0, "val_map50": 0.5}]
    loss, validation = training_panels(history)
    assert (loss.title, loss.top, loss.epochs) == ("Loss", 4.0, 2)
    assert loss.lines == [("all", 2.0, "50.0,0.0 100.0,50.0")]
    assert validation.lines == [("mAP50", 0.5, "100.0,50.0")]
    assert [panel.title for panel in training_panels(history[:1])] == ["Loss"]
    assert training_panels([]) == []


def test_sizes_are_counted_in_doubling_bars() -> None:
    bars = size_bars([4, 20, 20, 300])
    assert [(name, count) for name, count, _ in bars if count] == [("0 to 8", 1), ("16 to 32", 2), ("256 up", 1)]
    assert max(share for *_, share in bars) == 100
    assert sum(count for _, count, _ in size_bars([])) == 0
