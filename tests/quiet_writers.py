"""Importing this keeps services beside commits out of tests and campaigns, which count instants, files and
calls, or run services as actors of their own. Processes that they start inherit it. Tests of services ask for
them.
"""

from __future__ import annotations

import os

from mainstem.api.real_seams import SERVICES_VARIABLE

os.environ.setdefault(SERVICES_VARIABLE, "off")
