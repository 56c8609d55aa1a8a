"""What can go wrong, sorted by what happens next.

    AutotuneError(message, hint=...)
    ├── UsageError         you correct the command line      exit 2
    ├── SearchSpaceError   you fix the file                  exit 2
    ├── StudyError         you pick or move a study          exit 2
    ├── BaselineError      nothing usable can be measured    exit 1
    │   └── BaselineSetupError  you add a setting to the file exit 2
    ├── HostError          this host cannot run trials       exit 3
    └── TrialError         this trial failed, the study goes on
        ├── LaunchError        the server never became ready
        ├── ServerExitedError  the server went away
        └── MeasurementError   the numbers cannot be trusted

A failed gate is a `Verdict` and a failed configuration is an `Outcome`; neither is an exception that
reaches `main`.
"""

from typing import ClassVar


class AutotuneError(Exception):
    """A problem that a person can act on: what is wrong, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class UsageError(AutotuneError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class SearchSpaceError(AutotuneError):
    """The search-space file is wrong; `problems` holds every mistake, one `file:line: text` each."""

    exit_code = 2

    def __init__(self, problems: list[str], *, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class StudyError(AutotuneError):
    """The study's folder does not fit this run."""

    exit_code = 2


class BaselineError(AutotuneError):
    """The baseline does not start or does not pass its gates, so nothing can be compared with it."""

    exit_code = 1


class BaselineSetupError(BaselineError):
    """The baseline's answers show that a fixed setting is missing, a parser for example."""

    exit_code = 2


class HostError(AutotuneError):
    """No configuration can be served on this host."""

    exit_code = 3


class TrialError(AutotuneError):
    """A configuration could not be measured; `family` says what a tuner does about it.

    line: the decisive line of the server's log, as it stands there
    """

    def __init__(
        self,
        message: str,
        *,
        family: str = "unknown",
        hint: str | None = None,
        line: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.family = family
        self.line = line


class LaunchError(TrialError):
    """The server never became ready."""


class ServerExitedError(TrialError):
    """The server went away although nobody asked it to."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        family: str = "engine_died",
        hint: str | None = None,
        line: str | None = None,
    ) -> None:
        super().__init__(message, family=family, hint=hint, line=line)
        self.server_exit_code = exit_code


class MeasurementError(TrialError):
    """Requests failed or the client was the bottleneck, so there is no number."""
