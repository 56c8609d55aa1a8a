"""The Optuna storage of a study: opened so that a dashboard can look on, and set aside when broken."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import optuna
import sqlalchemy.exc
from optuna.storages import RDBStorage

from autotune.errors import HostError, StudyError

LOCK_TIMEOUT_S = 60.0
DEFAULT_FILENAME = "study.db"

STORAGE_TROUBLE = (
    optuna.exceptions.StorageInternalError,
    sqlalchemy.exc.SQLAlchemyError,
    sqlalchemy.exc.DBAPIError,
)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / DEFAULT_FILENAME}"


def open_storage(url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> RDBStorage:
    """Open a storage; SQLite in write-ahead mode, so that readers never block the writer.

    Raises:
        StudyError: It cannot be opened.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    connect_args = {"timeout": lock_timeout_s} if url.startswith("sqlite") else {}
    try:
        storage = RDBStorage(url, engine_kwargs={"connect_args": connect_args})
        if url.startswith("sqlite"):
            with storage.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    except (*STORAGE_TROUBLE, ValueError, ImportError, AssertionError) as error:
        raise StudyError(
            f"{_without_password(url)}: cannot be opened as a study's storage: {error}",
            hint="Check the URL, and that the database can be reached and written.",
        ) from error
    return storage


def close_storage(storage: RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn trouble with the storage into words for a person.

    Raises:
        HostError: The storage is locked for good, full, or gone.
    """
    try:
        yield
    except STORAGE_TROUBLE as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise HostError(
            f"the study's storage does not answer: {reason}",
            hint="Nothing is lost: every finished trial has its record. Free disk space or bring the "
            "database back, then give the same command again.",
        ) from error


def set_aside(folder: Path, stamp: str) -> Path:
    """Move a storage out of the way, with the files that SQLite keeps beside it; nothing is deleted."""
    target = folder / f"{DEFAULT_FILENAME}.{stamp}"
    for suffix in ("", "-wal", "-shm"):
        source = folder / f"{DEFAULT_FILENAME}{suffix}"
        if source.exists():
            os.replace(source, f"{target}{suffix}")  # noqa: PTH105  the suffix is not a pathlib one
    return target


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    user = credentials.partition(":")[0]
    return f"{scheme}://{user + ':***' if at else ''}{at}{place}"
