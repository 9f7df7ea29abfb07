import os

import pytest

# Queries of tests do not belong in the user's history.
os.environ.setdefault("TET_NO_QUERY_HISTORY", "1")

pytest.register_assert_rewrite("support", "tetwalk")
