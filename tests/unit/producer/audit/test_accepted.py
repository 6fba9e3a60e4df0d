"""`--accept LIST`: a score or a CSV with a column id; unknown ids are named, nothing else is lost."""

from pathlib import Path

import pytest

from producer.audit.accepted import accepted, read_findings
from producer.audit.decisions import decided
from producer.audit.results import is_copy, results_text
from shared.audit.findings import AuditFinding, AuditFindings, finding_id, number_of, whole_id
from shared.errors import OptionError, PlanError
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.golden.regenerate import GOLDEN


def findings(*scores: float) -> AuditFindings:
    rows = tuple(
        AuditFinding(
            id=f"{number:010x}",
            kind="made_up",
            file=f'"{number}, =x.jpg',
            object=1,
            score=score,
            class_name="cat",
            box=(0, 0, 9, 9),
            proposed_class="",
            proposed_box=None,
            reason="nothing there",
        )
        for number, score in enumerate(scores)
    )
    return AuditFindings(run="job.audit-3", job="job", folds=3, photos=2, boxes=9, findings=rows)


FOUND = findings(0.9, 0.8, 0.3)


def test_of_the_audits_own_table_the_rows_with_yes_are_accepted(tmp_path: Path) -> None:
    listed = tmp_path / "audit.csv"
    listed.write_text(FOUND.to_csv())
    with pytest.raises(OptionError, match="no row has yes in the column accept: write it where a finding is right"):
        accepted(str(listed), FOUND)
    text = FOUND.to_csv().replace("000,,", "000,no,").replace("001,,", "001,yes,").replace("002,,", "002,X,")
    listed.write_text(text)
    chosen, unknown = accepted(str(listed), FOUND)
    assert [finding.score for finding in chosen] == [0.8, 0.3]
    assert unknown == []
    listed.write_text(text.replace("000,no,", "000,maybe,"))
    with pytest.raises(OptionError, match="row x0000000000 has 'maybe' in the column accept: expected yes or nothing"):
        accepted(str(listed), FOUND)


@pytest.mark.parametrize("head", ["id,Accept", "ID, accept", "Id ,ACCEPT "])
def test_a_column_accept_counts_however_its_name_is_written(tmp_path: Path, head: str) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(f"{head}\n{FOUND.findings[0].id}, no\n{FOUND.findings[1].id}, yes\n")
    chosen, unknown = accepted(str(listed), FOUND)
    assert ([finding.score for finding in chosen], unknown) == ([0.8], [])


def test_the_folder_of_proposals_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    (told,) = [line for line in results_text(storage, FOUND, None) if "audit.csv; the likely ones as XML" in line]
    assert told.endswith("/runs/job.audit-3/proposals")
    assert not [line for line in results_text(storage, findings(0.3), None) if "LabelImg" in line]


def test_a_list_from_a_spreadsheet_and_unknown_ids(tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text("\ufeffid;kind\r\n0000000001;made_up\r\nnope\x1b[31m;\r\n;\r\n", encoding="utf-8")
    chosen, unknown = accepted(str(listed), FOUND)
    assert [finding.score for finding in chosen] == [0.8]
    assert unknown == [rf"{listed}: 'nope\x1b[31m' is no finding of job.audit-3: left out"]


def test_an_id_that_a_spreadsheet_took_for_a_number_is_found(tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text("id,accept\n1,yes\n2,yes\n")  # of 0000000001 and 0000000002
    chosen, unknown = accepted(str(listed), FOUND)
    assert [finding.score for finding in chosen] == [0.8, 0.3]
    assert unknown == []


@pytest.mark.parametrize(
    "told",
    ["12345678e1", "x12345678e1", "1.23E+08", "1.2345678E+08", "123456780", "123456780.0"],
    ids=["earlier version", "as written", "Excel", "rounded less", "all digits", "a float"],
)
def test_an_id_that_reads_as_a_number_is_found_however_a_spreadsheet_wrote_it(tmp_path: Path, told: str) -> None:
    found = FOUND.findings[0].model_copy(update={"id": whole_id("12345678e1"), "score": 0.7})
    audit = FOUND.model_copy(update={"findings": (*FOUND.findings, found)})
    listed = tmp_path / "list.csv"
    listed.write_text(f"id,accept\n{told},yes\n")
    chosen, unknown = accepted(str(listed), audit)
    assert ([finding.score for finding in chosen], unknown) == ([0.7], [])


def test_a_number_that_may_be_two_ids_is_neither(tmp_path: Path) -> None:
    rows = [FOUND.findings[0].model_copy(update={"id": whole_id(each)}) for each in ("12345678e1", "12325678e1")]
    listed = tmp_path / "list.csv"
    listed.write_text("id,accept\n1.23E+08,yes\nx12325678e1,yes\n")
    chosen, (line,) = accepted(str(listed), FOUND.model_copy(update={"findings": tuple(rows)}))
    assert [finding.id for finding in chosen] == ["x12325678e1"]
    assert "'1.23E+08' is no finding" in line


def test_ids_of_an_earlier_version_are_read_as_those_of_now_wherever_they_stand(tmp_path: Path) -> None:
    assert finding_id([2]).isalnum()
    ids = [finding_id([number]) for number in range(2000)]
    with pytest.raises(ValueError, match="could not convert"):
        float(next(each for each in ids if each.startswith("x")))
    assert not any(number_of(each) is not None and not each.startswith("x") for each in ids)
    assert len(set(ids)) == 2000
    assert FOUND.findings[0].id == "x0000000000"
    storage = Storage(str(tmp_path))
    storage.write(
        f"{RunPaths('job.audit-3').decisions}/000001.json", b'{"finding":"0000000001","answer":"right","at":1}'
    )
    assert decided(storage, "job.audit-3", FOUND.findings) == [FOUND.findings[1]]
    assert whole_id("00000000ab") == "00000000ab"
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "audit.csv").write_text(FOUND.to_csv().replace("x000", "000"))
    assert is_copy(copy, FOUND)


def test_a_score_accepts_all_from_there_on() -> None:
    assert len(accepted("0.8", FOUND)[0]) == 2
    with pytest.raises(OptionError, match=r"no finding has such a score; the surest has 0\.90"):
        accepted("0.95", FOUND)
    with pytest.raises(OptionError, match="expected a score from 0 to 1"):
        accepted("7", FOUND)


@pytest.mark.parametrize("text", ["90%", "0,9", "absent.csv", "."])
def test_what_is_neither_a_score_nor_a_file_is_told_what_is_expected(text: str) -> None:
    with pytest.raises(
        OptionError, match=r"^--accept .*: expected a score from 0 to 1, or a CSV file with a column id"
    ):
        accepted(text, FOUND)


@pytest.mark.parametrize(
    ("content", "expected"),
    [("a,b\n1,2\n", "no column id"), ("", "no column id"), ("id\nffff\n", "names no finding of job.audit-3")],
)
def test_a_list_of_nothing_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(content)
    with pytest.raises(OptionError, match=expected):
        accepted(str(listed), FOUND)


def test_many_unknown_ids_are_counted_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join(["id", "0000000000", *(f"x{number}" for number in range(25))]))
    chosen, unknown = accepted(str(listed), FOUND)
    assert len(chosen) == 1
    assert unknown[-1] == f"{listed}: 15 more ids are no findings of job.audit-3: left out"
    listed.write_text("\n".join(["id", "0000000000", *(f"x{number}" for number in range(11))]))
    assert accepted(str(listed), FOUND)[1][-1] == f"{listed}: 1 more id is no finding of job.audit-3: left out"
    listed.write_bytes(b"id\n\xff\xfe")
    with pytest.raises(OptionError, match="expected a CSV in UTF-8"):
        accepted(str(listed), FOUND)


@pytest.mark.parametrize("tail", ["", "x" * 200_000], ids=["short", "long"])
def test_a_quotation_mark_without_a_partner_is_refused_instead_of_losing_what_follows(
    tmp_path: Path, tail: str
) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(f'id,accept\n0000000000,yes\n"0000000001,yes\n0000000002,yes\n{tail}')
    with pytest.raises(OptionError, match=r"list\.csv: no CSV from line 3 on: "):
        accepted(str(listed), FOUND)


def test_an_audit_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    job = Job.model_validate_json((GOLDEN / "store-0.1.0/jobs/upgraded/job.json").read_text(encoding="utf-8"))
    with pytest.raises(
        PlanError, match=rf"no audit up\.audit-quick: `.*audit {job.job} --quick --store .*` makes one$"
    ):
        read_findings(storage, job, "up.audit-quick")
    asked = RunSpec(run="up.audit-2", job=job.job, incarnation=job.incarnation, folds=2, audits=("up.fold-1-of-2",))
    storage.write(RunPaths(asked.run).request, asked.to_json().encode())
    with pytest.raises(PlanError, match=r"no audit up\.audit-3 \(there are: up\.audit-2 \(--folds 2\)\)$"):
        read_findings(storage, job, "up.audit-3")


def test_findings_that_are_missing_of_a_finished_audit_are_named_with_what_makes_them_again(tmp_path: Path) -> None:
    storage, paths = Storage(str(tmp_path)), RunPaths("job.audit-3")
    job = Job.model_validate_json((GOLDEN / "store-0.1.0/jobs/upgraded/job.json").read_text(encoding="utf-8"))
    asked = RunSpec(run="job.audit-3", job=job.job, incarnation=job.incarnation, audits=("job.fold-1-of-3",))
    storage.write(paths.request, asked.to_json().encode())
    with pytest.raises(PlanError, match=r"audit job\.audit-3 is not done"):
        read_findings(storage, job, "job.audit-3")
    storage.write(paths.run, make_note(job.incarnation))
    missing = r"is done, but .*runs/job\.audit-3/findings\.json is missing: `.*retry .* --run job\.audit-3.*` makes it"
    with pytest.raises(PlanError, match=missing):
        read_findings(storage, job, "job.audit-3")
    storage.write(paths.findings, FOUND.model_dump_json().encode())
    assert read_findings(storage, job, "job.audit-3") == FOUND
