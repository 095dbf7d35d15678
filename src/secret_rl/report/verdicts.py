"""The verdict on a credit model in the words of pages and commands."""

from secret_rl.credit.diagnosis import FitReport

_DOUBTS = {
    "not learned": "the past may decide the rewards, but the model has not learned how",
    "past not needed": "the present predicts the rewards as well as the past does",
}


def verdict_of(report: FitReport) -> str:
    """The verdict, and how much of the open uncertainty the past removes."""
    return f"verdict: {report.verdict}; the past removes {report.history_gain:.1%} of what the present leaves open"


def doubt_of(report: FitReport | None) -> str | None:
    """Why the attention of a model is not credit; None where it is."""
    if report is None or report.verdict == "credit":
        return None
    return f"{_DOUBTS[report.verdict]}: what it looked at need not have earned the rewards"
