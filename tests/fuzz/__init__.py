from tests import quiet_writers  # noqa: F401
