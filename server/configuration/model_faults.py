"""What a model's section says that would have no effect, or contradicts itself: refused by name, not dropped. Pure."""

from collections.abc import Iterator

from asr_model.declared import DECLARED, check_options
from asr_model.optimize_names import ON_CUDA
from server.configuration.model_sections import ModelSection, TensorModelConfig


def kernel_faults(place: str, section: ModelSection) -> Iterator[str]:
    """What ``optimize`` is that its model does not take where it is to run, or that its options contradict. What device
    ``auto`` comes to is not looked at."""
    asked, said = section.optimize, section.options.get("optimize", section.optimize)
    is_on_cuda = any(group.device.startswith("cuda") for group in section.groups)
    allowed = [each for each in DECLARED[section.model].optimizations if each in ON_CUDA or not is_on_cuda]
    if asked not in allowed:
        model = f"{section.model} on CUDA" if is_on_cuda else section.model
        yield f"{place}.optimize: given {asked!r}, allowed: {', '.join(allowed)} ({model})"
    elif asked != "none" and said != asked:
        yield f"{place}: optimize is {asked}, but options.optimize is {said}; allowed: one of them, or both the same"


def option_faults(place: str, section: ModelSection) -> Iterator[str]:
    """What its model says of its options, with the kernels that are asked of it among them."""
    options: dict[str, object] = {**section.options}
    if section.optimize != "none":
        options["optimize"] = section.optimize
    try:
        check_options(section.model, options)
    except ValueError as error:
        yield f"{place}.options: {error}"


def dropped_faults(place: str, section: ModelSection, scheduler: str) -> Iterator[str]:
    """What is set of the batcher that it does not have. Under the wrong one, where that is allowed, all may stand: the
    model's own settings are to work again once ``scheduler`` is right."""
    if not isinstance(section, TensorModelConfig):
        return  # live and final have but the fields of their role
    is_wrong = scheduler != (DECLARED[section.model].scheduler or scheduler)
    if is_wrong:
        return
    for name, batcher in section.foreign_fields(scheduler).items():
        yield f"{place}.{name}: is for the {batcher} batcher, {section.model} has the {scheduler} one"
