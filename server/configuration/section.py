"""What all sections of the configuration are made of."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

Scalar = bool | int | float | str

DEVICE_PATTERN = r"^(auto|cpu|cuda(:\d{1,3})?)$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
MODEL_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
PATTERN_WORDS: Final = {
    DEVICE_PATTERN: "auto, cpu, cuda or cuda:N",
    NAME_PATTERN: "1 to 64 letters, digits, spaces and . _ @ -, a letter or digit first",
    SHA256_PATTERN: "64 hexadecimal digits in lower case, as moorage key new prints them",
    MODEL_NAME_PATTERN: "1 to 64 letters, digits and . _ -, a letter or digit first",
}

Device = Annotated[str, Field(pattern=DEVICE_PATTERN)]
"""``auto`` (CUDA if there is one, else CPU), ``cpu``, ``cuda`` or ``cuda:N``."""


class Section(BaseModel):
    """What all sections have in common."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
