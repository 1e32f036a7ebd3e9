"""The configuration as people read it: what is in force and where it came from, and the reference of every field."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, TypeGuard, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from asr_model.declared import DECLARED, settings_class
from server.configuration.config import MoorageConfig, Tree, allowed_values, config_sources, load_config
from server.configuration.environment import variable_name
from server.configuration.model_sections import BATCHER_FIELDS, TensorModelConfig

BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
SECRETS: Final = frozenset({"sha256"})
ENVIRONMENT: Final = "environment"
HIDDEN: Final = "(hidden)"
UNITS: Final = {"_bytes": "bytes", "_ms": "ms", "_s_per_minute": "s per minute", "_s": "s", "_fraction": "ratio"}
INTRODUCTION: Final = """\
# Configuration

Every setting of `moorage serve`. Made from the code by `moorage config reference`.

A value comes from the defaults, then from the file (`moorage serve --config moorage.toml`), then from the environment,
then from the command line; the last one wins. The variable of `server.port` is `MOORAGE_SERVER__PORT`, with two
underscores between section and field; values are written as in TOML, texts also without quotes. A variable that begins
with `MOORAGE_` and is no setting is an error, and so is an unknown field in the file.

* `moorage config check moorage.toml` says what is wrong, models' options included; it loads no model.
* `moorage config show moorage.toml` prints what is in force, and where each value came from.
* `moorage.toml.example` has every field with its default.
"""
CLIENT_VARIABLES: Final = """\
## Other variables

| variable | meaning |
|---|---|
| `MOORAGE_MOONSHINE` | where Moonshine's weights are: a folder or a converted file; else the package `moonshine-cpp` |
| `MOORAGE_KEY` | the API key that `moorage replay`, `mic` and the other clients send |
| `MOORAGE_SPEECH`, `MOORAGE_HYPOTHESIS` | where the tests find recorded speech; how long they search for faults |
"""


def config_text(
    path: Path | None = None, environment: Mapping[str, str] | None = None, overrides: Tree | None = None
) -> str:
    """The configuration in force as TOML, each value with its origin. Secrets are hidden.

    Raises:
        ConfigError: As ``load_config``.
    """
    config = load_config(path, environment, overrides)
    file, variables, command_line = config_sources(path, environment, overrides)
    origins = (("command line", command_line), (ENVIRONMENT, variables), (str(path), file))
    lines: list[str] = []
    for name in MoorageConfig.model_fields:
        section: object = getattr(config, name)
        if isinstance(section, BaseModel):
            lines += ["", *_section_lines(name, section, [(origin, _table(tree, name)) for origin, tree in origins])]
        elif isinstance(section, dict):
            lines += ["", f"[{name}]"]
            lines += _option_lines((name,), section, [(origin, _table(tree, name)) for origin, tree in origins])
        elif _is_tables(section):
            lines += _item_lines(name, section, _origin((name,), list(origins)))
    return "\n".join(lines[1:]) + "\n"


def reference() -> str:
    """Every field with unit, bounds, default and meaning, in Markdown: ``docs/configuration.md``."""
    parts = [INTRODUCTION]
    for name, field in MoorageConfig.model_fields.items():
        item = _item_section(field)
        if item is not None:
            text = f"{_flat(field.description)} {_flat(item.__doc__)}"
            parts.append(f"## `[[{name}]]`\n\n{text}\n\n{_field_table(None, item)}")
            continue
        if not isinstance(field.default, BaseModel):
            parts.append(f"## `[{name}]`\n\n{_flat(field.description)}\n")
            continue
        section = type(field.default)
        parts.append(f"## `[{name}]`\n\n{_flat(field.description)}\n\n{_field_table(name, section)}")
        for key, below in section.model_fields.items():
            item = _item_section(below)
            if item is not None:
                parts.append(f"### `[[{name}.{key}]]`\n\n{_flat(item.__doc__)}\n\n{_field_table(None, item)}")
    parts += [_options_part(name) for name in DECLARED if settings_class(name) is not None]
    return "\n".join([*parts, CLIENT_VARIABLES])


def _section_lines(name: str, section: BaseModel, sources: list[tuple[str, Tree]]) -> Iterator[str]:
    """One section with those below it, its own values first as TOML wants it."""
    yield f"[{name}]"
    values = _values(section)
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lists = {key: value for key, value in values.items() if value and _is_tables(value)}
    for key, value in values.items():
        if key not in tables and key not in lists:
            yield f"{key} = {toml_value(key, value)}  # {_origin((name, key), sources)}"
    for key, items in lists.items():
        yield from _item_lines(f"{name}.{key}", items, _origin((name, key), sources))
    for key, table in tables.items():
        yield from ("", f"[{name}.{key}]")
        yield from _option_lines((name, key), table, [(origin, _table(tree, key)) for origin, tree in sources])


def _item_lines(path: str, items: tuple[BaseModel, ...], origin: str) -> Iterator[str]:
    for item in items:
        yield from ("", f"[[{path}]]  # {origin}")
        yield from (f"{field} = {toml_value(field, value)}" for field, value in _item_values(item).items())


def _option_lines(path: tuple[str, ...], table: dict[str, object], sources: list[tuple[str, Tree]]) -> Iterator[str]:
    for option, value in table.items():
        yield f"{_word(option)} = {toml_value(option, value)}  # {_origin((*path, option), sources)}"


def _word(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else json.dumps(key)


def _item_values(item: BaseModel) -> dict[str, object]:
    """Of a model without what is for the batcher that it does not have."""
    values = _values(item)
    declared = DECLARED.get(item.model) if isinstance(item, TensorModelConfig) else None
    if isinstance(item, TensorModelConfig) and declared is not None:
        own = {item.scheduler or declared.scheduler, declared.scheduler}
        foreign = {name for batcher, names in BATCHER_FIELDS.items() if batcher not in own for name in names}
        return {name: value for name, value in values.items() if name not in foreign}
    return values


def _values(section: BaseModel) -> dict[str, object]:
    # dict(section) would call the section's field ``keys``
    return {key: getattr(section, key) for key in type(section).model_fields}


def _origin(path: tuple[str, ...], sources: list[tuple[str, Tree]]) -> str:
    origin = next((origin for origin, tree in sources if path[-1] in tree), "default")
    return f"{ENVIRONMENT}, {variable_name(path)}" if origin == ENVIRONMENT else origin


def _table(tree: Tree, key: str) -> Tree:
    below = tree.get(key)
    return below if isinstance(below, dict) else {}


def _is_tables(value: object) -> TypeGuard[tuple[BaseModel, ...]]:
    return isinstance(value, tuple) and bool(value) and all(isinstance(item, BaseModel) for item in value)


def toml_value(key: str, value: object) -> str:
    """A value as TOML has it on one line; secrets, which ``key`` tells, are hidden."""
    if key in SECRETS:
        return json.dumps(HIDDEN)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(toml_value('', item) for item in value)}]"
    if isinstance(value, BaseModel):
        value = _values(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_word(key)} = {toml_value(key, each)}' for key, each in value.items())}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _field_table(section_name: str | None, section: type[BaseModel]) -> str:
    """``section_name`` None: of the items of a list, which have no variables."""
    rows = ["| field | allowed | default | meaning |", "|---|---|---|---|"]
    for key, field in section.model_fields.items():
        default = "–" if field.default is PydanticUndefined else f"`{_shown_default(field.default)}`"
        name = f"`{key}`" if section_name is None else f"`{key}`<br>`{variable_name((section_name, key))}`"
        allowed = f"{allowed_values(field)}{_unit(key)}"
        rows.append(f"| {name} | {_cell(allowed)} | {default} | {_cell(_flat(field.description))} |")
    return "\n".join(rows) + "\n"


def _shown_default(default: object) -> str:
    return "{}" if default == {} else toml_value("", default)


def _item_section(field: FieldInfo) -> type[BaseModel] | None:
    kinds = get_args(field.annotation)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _options_part(name: str) -> str:
    settings = settings_class(name)
    assert settings is not None
    texts = _attribute_texts(settings)
    declared = DECLARED[name]
    section = "models" if not declared.listens else "live" if declared.scheduler == "sequence" else "final"
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for field in fields(settings):
        rows.append(f"| `{field.name}` | `{toml_value('', field.default)}` | {_cell(texts.get(field.name, ''))} |")
    heading = f"## `[{section}.options]` of `{name}`"
    return "\n".join([heading, "", *rows, ""])


def _attribute_texts(settings: type) -> dict[str, str]:
    """The docstring under each attribute of a class, on one line."""
    body = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[statement.target.id] = _flat(str(following.value.value))
    return texts


def _unit(key: str) -> str:
    unit = next((unit for suffix, unit in UNITS.items() if key.endswith(suffix)), None)
    return f" ({unit})" if unit else ""


def _flat(text: str | None) -> str:
    return " ".join((text or "").replace("``", "`").split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
