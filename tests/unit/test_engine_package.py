"""What the package may count on inside the user's image: an older Python, nothing installed, no vLLM."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import specpilot_engine

SERVING = Path(__file__).parents[2] / "serving"
OLDEST = (3, 10)  # Python that vLLM's images may have
FILES = sorted(SERVING.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SERVING)))
def test_every_file_is_written_in_the_oldest_pythons_grammar(path):
    ast.parse(path.read_text(), feature_version=OLDEST)


def test_the_scheduler_can_be_imported_with_nothing_installed():
    code = f"import sys; sys.path.insert(0, {str(SERVING)!r}); import specpilot_engine.scheduler; print('ok')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_the_version_is_the_projects():
    project = (SERVING.parent / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1] == specpilot_engine.__version__
