"""The sides of these tests."""

from tests.support.contract.few_sides import side as side  # noqa: PLC0414  # a fixture
