"""Requests for an audit's findings -> HTML and photos, and the form with which a person decides."""

from bisect import bisect_right
from collections import Counter
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from producer.audit.decisions import Answer
from producer.audit.photo_sizes import photos_folder
from producer.audit.results import quick_words
from producer.page.deeds import refusal
from producer.page.facts.commands import hint_here
from producer.page.facts.crops import crop_of_finding
from producer.page.facts.photos import shown_photo
from producer.page.labels import KINDS, Audit, Trail, address, kind_of
from producer.page.render import render
from shared.audit.findings import FindingKind
from shared.colours import MISTAKE, PALETTE, as_css
from shared.errors import OptionError, PlanError
from shared.text import printable

# The question for each kind, to be answered in five seconds.
QUESTIONS: Final[dict[FindingKind, str]] = {
    "missing": "Is this a {proposed} that nobody has marked?",
    "made_up": "Is this marked {marked} a mistake?",
    "misplaced": "Is the dashed box better for this {marked} than the marked one?",
    "wrong_class": "Is this marked {marked} really a {proposed}?",
    "double": "Is one {marked} marked twice here?",
}
# The buttons of each kind: what yes and no do to the label.
BUTTONS: Final[dict[FindingKind, tuple[str, str]]] = {
    "missing": ("Yes, add the box", "No, add nothing"),
    "made_up": ("Yes, remove the box", "No, keep it"),
    "misplaced": ("Yes, move the box", "No, leave it there"),
    "wrong_class": ("Yes, call it {proposed}", "No, keep {marked}"),
    "double": ("Yes, remove this box", "No, keep both"),
}
_COLOURS: Final = {"marked": as_css(MISTAKE), "proposed": as_css(PALETTE[0])}
_GIVEN: Final[dict[str, Answer]] = {"right": "right", "wrong": "wrong", "skip": "skip", "open": "open"}
_STAYS: Final = "Somebody else has decided on that finding since: theirs stays."
_BACK: Final = "Taken back. Decide again."
_OPEN: Final = "This finding is open again."
_MOST_FIELDS: Final = 4


def labels(request: Request) -> Response:
    """`/runs/{run}/labels`: the finding `at`, or the first open one, of the chosen `kind` or of all."""
    audit: Audit = request.app.state.audits.get(request.path_params["run"])
    asked = request.query_params
    kind = kind_of(asked.get("kind", ""))
    place = audit.at.get(asked.get("at", ""))
    if place is None or (kind is not None and audit.found.findings[place].kind != kind):
        place = audit.next_open(-1, kind)
    trail = Trail.read(asked.get("trail", ""))
    shown = {"finding": None} if place is None else _finding(request, audit, place, trail, kind)
    words = ("audit", audit.job.job, *quick_words(audit.found), "--accept", "decisions", "--out", "FOLDER")
    command = hint_here(request.app.state.storage, *words)
    return render(
        request,
        "labels.html.j2",
        run=audit.found.run,
        job=audit.job.job,
        trail=trail,
        may_undo=audit.last_of(trail, kind) is not None,
        remarks=audit.found.remarks,
        accept=command,
        **_progress(audit, place, trail, kind),
        **shown,
    )


def _progress(audit: Audit, place: int | None, trail: Trail, kind: FindingKind | None) -> dict[str, Any]:
    """How many findings of the chosen kind are decided, and links to the kinds with their numbers of open findings.

    `kept_href` leads to the next finding after `place` that was kept before, so that a person can look at them all.
    """
    findings, shown = audit.found.findings, (None, *(each for each in KINDS if each in audit.of_kind))
    # Only decisions are counted, not all findings: an audit may have 100,000, and this is done for every question.
    decided = [(findings[audit.at[each]].kind, answer) for each, answer in audit.answers.items() if each in audit.at]
    counts = {each: Counter(answer for of, answer in decided if each in (None, of)) for each in (None, *KINDS)}
    open_counts = {each: len(audit.places(each)) - count.total() for each, count in counts.items()}
    kept = audit.next_kept(-1 if place is None else place, kind)
    return {
        "kept_count": sum(kind in (None, findings[audit.at[each]].kind) for each in audit.kept),
        "kept_href": "" if kept is None else address(audit.found.run, findings[kept].id, trail, kind),
        "kind": kind,
        "total": len(audit.places(kind)),
        "counts": {**dict.fromkeys(_GIVEN.values(), 0), **counts[kind], "open": open_counts[kind]},
        "kinds": [(each, open_counts[each], address(audit.found.run, None, trail, each)) for each in shown],
    }


def _finding(request: Request, audit: Audit, place: int, trail: Trail, kind: FindingKind | None) -> dict[str, Any]:
    """What is shown of one finding."""
    findings = audit.found.findings
    finding = findings[place]
    try:
        state = request.app.state
        audited = audit.sizes.get(finding.file)
        head = audit.heads.get(finding.file)
        crop = crop_of_finding(state.storage, audit.job, finding, audited, state.settings.data_root, head)
        why_not = "the photo is gone, or cannot be read"
    except PlanError as error:
        crop, why_not = None, str(error)
    beside = zip(("before", "behind"), audit.beside(place, kind), strict=True)
    names = {"marked": printable(finding.class_name), "proposed": printable(finding.proposed_class)}
    yes, no = (button.format(**names) for button in BUTTONS[finding.kind])
    said: dict[Answer, str] = {"right": yes, "wrong": no, "skip": "skipped"}
    return {
        "finding": finding,
        "place": bisect_right(audit.places(kind), place),
        "question": QUESTIONS[finding.kind].format(**names),
        "yes": yes,
        "no": no,
        "kept": audit.kept.get(finding.id),
        "answer": said[audit.answers[finding.id]] if finding.id in audit.answers else "",
        "crop": crop,
        "why_not": why_not,
        "colours": _COLOURS,
        "links": {
            name: address(audit.found.run, findings[at].id, trail, kind) for name, at in beside if at is not None
        },
    }


def photo(request: Request) -> Response:
    """`/runs/{run}/labels/photos/{finding}`: the photo of a finding."""
    state = request.app.state
    audit, finding = state.audits.get(request.path_params["run"]), request.path_params["finding"]
    if finding not in audit.at:
        raise PlanError(f"{audit.found.run} has no finding {finding!r}")
    folder = photos_folder(audit.job, state.settings.data_root)
    file = audit.found.findings[audit.at[finding]].file
    content, kind = shown_photo(folder, file, audit.job.spec.max_pixels)
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=600"})


async def decide(request: Request) -> Response:
    """POST `/runs/{run}/labels`: notes a person's answer to a finding, or takes back the last one or this finding's."""
    refused = refusal(request)
    if refused is not None:
        return refused
    form = await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=1 << 12)
    return await run_in_threadpool(_decided, request, form)


def _decided(request: Request, form: FormData) -> Response:
    audits, run = request.app.state.audits, request.path_params["run"]
    trail, asked = Trail.read(str(form.get("trail", ""))), str(form.get("answer", ""))
    kind = kind_of(str(form.get("kind", "")))
    if asked == "undo":
        return RedirectResponse(_taken_back(request, run, trail, kind), status_code=303)
    if asked not in _GIVEN:
        raise OptionError(f"expected right, wrong, skip, open or undo, found {asked[:80]!r}")
    finding = str(form.get("finding", ""))
    number = audits.decide(run, finding, _GIVEN[asked])
    if asked == "open":
        said = request.app.state.told.add(_OPEN)
        return RedirectResponse(address(run, finding, trail.with_decision(number), kind, said), status_code=303)
    audit: Audit = audits.get(run)
    place = audit.next_open(audit.at[finding], kind)
    at = audit.found.findings[place].id if place is not None else None
    return RedirectResponse(address(run, at, trail.with_decision(number), kind), status_code=303)


def _taken_back(request: Request, run: str, trail: Trail, kind: FindingKind | None) -> str:
    """Take the last decision back; return the address of its finding, or of the next open one if there was none."""
    audits = request.app.state.audits
    last: int | None = audits.get(run).last_of(trail, kind)
    if last is None:
        return address(run, None, trail, kind)
    finding = audits.undo(run, last)
    said = request.app.state.told.add(_STAYS if finding is None else _BACK)
    return address(run, finding, trail.without(last), kind, said)
