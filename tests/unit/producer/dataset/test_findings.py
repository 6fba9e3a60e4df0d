from producer.dataset.findings import Findings
from shared.jobs.findings import Finding


def finding(file: str, kind: str = "box_clipped", index: int | None = None, rank: str = "mended") -> Finding:
    return Finding.model_validate(
        {"file": file, "object_index": index, "rank": rank, "kind": kind, "found": "f", "done": "d"}
    )


MIXED = [
    finding("b"),
    finding("a", index=2).model_copy(update={"class_name": "cat"}),
    finding("a", index=1),
    finding("a", "class_unknown", rank="error"),
]


def test_what_goes_in_comes_out() -> None:
    findings = Findings(MIXED)
    assert list(findings) == MIXED
    assert len(findings) == 4


def test_they_sort_by_file_object_and_kind() -> None:
    findings = Findings(MIXED)
    findings.sort()
    assert list(findings) == [MIXED[3], MIXED[2], MIXED[1], MIXED[0]]


def test_kinds_and_ranks_are_counted() -> None:
    findings = Findings(MIXED)
    assert findings.kinds() == {"box_clipped": 3, "class_unknown": 1}
    assert list(findings.of_rank("error")) == [MIXED[3]]


def test_two_are_joined_in_order() -> None:
    findings = Findings(MIXED[:1])
    findings.extend(Findings(MIXED[1:]))
    assert list(findings) == MIXED
