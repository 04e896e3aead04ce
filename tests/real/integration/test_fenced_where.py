"""A row that refuses a token lower than the highest that has written it, on real databases."""

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, create_engine, select, update

from segmented.errors import InvalidInput
from segmented.locks.fencing import fenced_where

SECONDS = 60.0
TOKEN = 1_767_225_600_000_000
"""As tokens are: microseconds since 1970."""

account = Table(
    "account",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("balance", Integer, nullable=False),
    Column("fence", BigInteger),
)


@pytest.fixture(params=["sqlite_url", "postgres_database"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options = {"timeout": SECONDS} if request.param == "sqlite_url" else {}  # for the turns of its writers
    made = create_engine(request.getfixturevalue(request.param), connect_args=options)
    account.metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(account.insert().values(id=7, balance=0))
    yield made
    made.dispose()


def write(engine: Engine, balance: int, token: int, *, row: int = 7) -> int:
    """Write under a token, and return how many rows took it."""
    condition, values = fenced_where(account.c.fence, token=token)
    with engine.begin() as connection:
        done = connection.execute(
            update(account).where(account.c.id == row, condition).values(balance=balance, **values)
        )
        return done.rowcount


def state(engine: Engine) -> tuple[int, int | None]:
    with engine.connect() as connection:
        balance, fence = connection.execute(select(account.c.balance, account.c.fence)).one()
        return balance, fence


def test_a_lower_token_writes_no_row_and_an_equal_one_is_the_same_holder(engine: Engine) -> None:
    assert [write(engine, balance, TOKEN + later) for balance, later in ((1, 5), (2, 5), (3, 7))] == [1, 1, 1]
    assert write(engine, 4, TOKEN + 6) == 0
    assert state(engine) == (3, TOKEN + 7)


def test_an_orm_class_takes_the_same_condition(engine: Engine) -> None:
    class Base(sqlalchemy.orm.DeclarativeBase):
        pass

    class Account(Base):
        __tablename__ = "account"
        id: sqlalchemy.orm.Mapped[int] = sqlalchemy.orm.mapped_column(primary_key=True)
        balance: sqlalchemy.orm.Mapped[int]
        fence: sqlalchemy.orm.Mapped[int | None] = sqlalchemy.orm.mapped_column(BigInteger)

    condition, values = fenced_where(Account.fence, token=TOKEN)
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        session.execute(update(Account).where(Account.id == 7, condition).values(balance=1, **values))
    assert state(engine) == (1, TOKEN)


def test_what_is_no_token_is_refused() -> None:
    for token in (0, -1, True, 1.5):
        with pytest.raises(InvalidInput, match="is not a fencing token"):
            fenced_where(account.c.fence, token=token)  # type: ignore[arg-type]  # bad on purpose
