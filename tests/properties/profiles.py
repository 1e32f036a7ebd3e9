"""How long state machines run: the same examples every time, or with ``MOORAGE_HYPOTHESIS=moorage-long`` new ones."""

import os

from hypothesis import HealthCheck, settings


def machine_settings() -> settings:
    """Settings of a state machine, by the profile that the environment names."""
    settings.register_profile("moorage", derandomize=True, deadline=None, max_examples=300, stateful_step_count=50)
    settings.register_profile("moorage-long", deadline=None, max_examples=5_000, stateful_step_count=100)
    profile = settings.get_profile(os.environ.get("MOORAGE_HYPOTHESIS", "moorage"))
    return settings(profile, suppress_health_check=[HealthCheck.too_slow])
