"""The page of a job: its progress, its result and its undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.jobs import Work
    from deltasql.console.request import PageRequest

TITLES = (
    *("Optimize", "Vacuum", "Undo", "Check import", "Import", "Follow", "Refresh"),
    *("Check cutover", "Cutover", "Check rollback", "Rollback"),
)


def start(
    request: PageRequest, title: str, table: str, page: str, work: Work, command: str
) -> Response:
    """Start a job and redirect to its page, or to the page of a job that already runs."""
    user = request.visitor.user or ""
    job = request.state.jobs.start(title, table, page, work, user=user, command=command)
    refused = "" if job.title == title else f"?refused={title}"
    return request.go(f"/jobs/{job.job_id}{refused}")


def show(request: PageRequest) -> Response:
    """Show the progress of a job; the page polls its state with `part=1`."""
    found = request.state.jobs.get(request.http.path_params["job_id"])
    if found is None:
        raise HTTPException(404)
    template = "job_state.html" if request.text("part") == "1" else "job.html"
    return request.page(template, job=found, refused=request.choice("refused", "", *TITLES))
