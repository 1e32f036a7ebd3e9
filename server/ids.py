"""Identifiers, as distinct types so that a slot is never passed for an instance."""

from typing import NewType

SequenceId = NewType("SequenceId", str)
"""One ordered run of audio that shares state; unique among live sequences."""

RequestId = NewType("RequestId", int)
"""One request to a stateless model."""

InstanceIndex = NewType("InstanceIndex", int)
"""Position of a loaded model copy among the instances of its model, from 0."""

SlotIndex = NewType("SlotIndex", int)
"""Row of state on one instance, from 0."""
