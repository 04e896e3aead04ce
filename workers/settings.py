"""What a worker is told from outside: environment variables with the prefix SEGMENTED_."""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL
from workers.broker import broker_beside, kombu_url

PREFIX: Final = "SEGMENTED_"
QUEUE: Final = "segmented"


class WorkerSettings(BaseSettings):
    """Where stock, orders and messages are. The URLs may hold passwords, so none of them is ever shown."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True)

    url: SecretStr = SecretStr("redis://localhost:6379/0")
    """The Redis or Valkey server that holds the stock."""
    database: SecretStr = SecretStr("postgresql://postgres@localhost/segmented")
    """The order database."""
    broker: SecretStr | None = None
    """Celery's broker; by default the next database of the stock's server."""
    queue: str = QUEUE
    segment_ttl: float = Field(default=DEFAULT_TTL, gt=0)
    """Seconds that a segment's lease lives."""
    hold: float = Field(default=DEFAULT_HOLD, gt=0)
    """Seconds that the units of an order stay reserved while nobody finishes it."""
    segment_wait: float = Field(default=15.0, gt=0)
    """Seconds that an order waits for a free segment before its task is put off."""
    concurrency: int = Field(default=4, ge=1)
    """Orders that one worker takes side by side, each in a thread with a database connection of its own."""
    ends_with_stdin: bool = False
    """End when standard input does: for a worker whose starter holds the other end of that pipe."""

    @property
    def broker_url(self) -> str:
        """The broker's address in Celery's words."""
        if self.broker is None:
            return broker_beside(self.url.get_secret_value())
        return kombu_url(self.broker.get_secret_value())

    def environment(self) -> dict[str, str]:
        """Return these settings as the environment of another process: with the passwords, so not for showing."""
        values = self.model_dump() | {"broker": self.broker_url}
        plain = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in values.items()
        }
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in plain.items()}
