"""Text to YAML documents, as strict as kubectl: what was surely not meant is an error."""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Refuses a field that stands twice, of which YAML would silently keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} stands twice in one place",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value)
        return node


def documents(text: str) -> list[Any]:
    """The documents of a YAML (or JSON) text that are not empty. Raises ValueError that says where it is wrong."""
    try:
        return [doc for doc in yaml.load_all(text, _Loader) if doc is not None]
    except yaml.YAMLError as e:
        raise ValueError(_where(e)) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _where(error: yaml.YAMLError) -> str:
    """The parser's complaint in one line, with the place as an editor counts it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
