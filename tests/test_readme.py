"""What the documents show is true: their code runs, their commands exist.

In ``README.md`` and ``docs/*.md``, in the order of the text and in one empty folder per document:

- a ``python`` block is executed; the blocks of a document share their names;
- in a ``console`` or ``bash`` block each ``mabrfl ...`` line must be one that the command line understands.

A comment before a block changes that: ``<!-- run -->`` runs its ``mabrfl`` lines, ``<!-- file: NAME -->``
also writes the block into the folder under that name (any language), and ``<!-- not run: REASON -->``
leaves it out, which the report of the tests then shows as a skip with its reason.

``README.md`` is also read as a newcomer reads it: its ``<!-- run -->`` blocks are typed, word for word and in
order, into one shell that knows nothing, in a fresh copy of the project. What takes hours there has no such comment.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import types
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer
from typer.main import get_command

from mabrfl.cli.main import main

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = {"bash", "console", "sh", "shell"}


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, what it says, and what the comment before it asks for."""

    path: Path
    line: int
    language: str
    text: str
    note: str = ""

    @property
    def place(self) -> str:
        return f"{self.path.name}:{self.line}"

    @property
    def file_name(self) -> str | None:
        return self.note.removeprefix("file:").strip() if self.note.startswith("file:") else None

    @property
    def left_out(self) -> bool:
        return self.note.startswith("not run")

    @property
    def concerns_us(self) -> bool:
        return self.language == "python" or self.language in SHELLS or self.file_name is not None


def blocks_of(path: Path, text: str) -> Iterator[Block]:
    """The fenced blocks of a document that are to be checked, in order."""
    fence: str | None = None
    note, language, start, body = "", "", 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if fence is not None:
            if stripped == fence:
                block = Block(path, start, language, textwrap.dedent("\n".join(body)) + "\n", note)
                fence, note = None, ""
                if block.concerns_us:
                    yield block
            else:
                body.append(line)
        elif opening := re.fullmatch(r"(`{3,})\s*(\w*).*", stripped):
            fence, language, start, body = opening[1], opening[2], number + 1, []
        elif comment := re.fullmatch(r"<!--\s*(.*?)\s*-->", stripped):
            note = comment[1]
        elif stripped:
            note = ""
    assert fence is None, f"{path.name}:{start - 1}: this block is never closed"


def lines_of(block: Block) -> list[str]:
    """The lines that a reader types; prompts and output are dropped."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return lines


def commands_of(block: Block) -> Iterator[list[str]]:
    """The words of each simple command in a shell block; comments and settings are dropped."""
    for line in lines_of(block):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):
                words.append(word)


def arguments_of_mabrfl(words: list[str]) -> list[str] | None:
    """What follows ``mabrfl`` or ``python -m mabrfl``; None if this is some other command."""
    if Path(words[0]).name == "mabrfl":
        return words[1:]
    if Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "mabrfl"]:
        return words[3:]
    return None


def usage_problem(command: click.Command, words: list[str]) -> str | None:
    """Why the command line would not understand these words, as far as names of commands and options go."""
    context = click.Context(command, info_name=command.name)
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if isinstance(command, click.Group) and rest:
            _, chosen, rest = command.resolve_command(context, rest)
            return usage_problem(chosen, rest) if chosen else None
    except click.UsageError as error:
        return error.format_message()
    return f"unexpected argument: {' '.join(rest)}" if rest else None


def command_line() -> click.Command:
    from mabrfl.cli.app import app

    return get_command(app)


def check_shell(block: Block) -> None:
    run_here = block.note == "run" and block.path != README
    for words in commands_of(block):
        arguments = arguments_of_mabrfl(words)
        if arguments is None:
            assert not run_here, f"{block.place}: only mabrfl commands can be run here, not {words[0]}"
            continue
        problem = usage_problem(command_line(), arguments)
        assert problem is None, f"{block.place}: {shlex.join(words)}: {problem}"
        if run_here:
            assert main(arguments) == 0, f"{block.place}: mabrfl {shlex.join(arguments)}"


def check(block: Block, names: types.ModuleType, folder: Path) -> None:
    if block.file_name is not None:
        (folder / block.file_name).write_text(block.text, encoding="utf-8")
    if block.language == "python":
        # As many empty lines before it as in the document, so that a traceback names the document's line.
        code = "\n" * (block.line - 1) + block.text
        exec(compile(code, str(block.path), "exec"), names.__dict__)
    elif block.language in SHELLS:
        check_shell(block)


def read(path: Path) -> list[Block]:
    return list(blocks_of(path, path.read_text(encoding="utf-8"))) if path.exists() else []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_the_document_shows_works(path, tmp_path, monkeypatch):
    blocks = [block for block in read(path) if not block.left_out]
    if not blocks:
        pytest.skip(f"{path.name} has no python, console or bash block to check" + ("" if path.exists() else " yet"))
    names = types.ModuleType(f"document_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, names.__name__, names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in blocks:
        check(block, names, tmp_path)


def test_the_readme_begins_with_two_commands_and_its_one_table():
    text = README.read_text(encoding="utf-8")
    (head,) = re.finditer(r"^\| :?-", text, flags=re.MULTILINE)
    assert text.index("$ make demo\n$ . .venv/bin/activate\n") < head.start()
    assert text[: head.start()].count("\n") < 32, "the table is on the first screen"


FILES = [block for path in DOCUMENTS for block in read(path) if block.file_name is not None]


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.place)
def test_a_reader_is_told_the_name_of_a_file_before_its_text(block):
    before = block.path.read_text(encoding="utf-8").partition(f"<!-- file: {block.file_name} -->")[0]
    assert f"`{block.file_name}`" in before.rstrip().rpartition("\n\n")[2]


def fresh_copy(place: Path) -> Path:
    """Copy the files that belong to the project, as they are now."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def as_if_installed(copy: Path) -> None:
    """Leave what the installation in ``make demo`` leaves; the packages are those of this interpreter."""
    environment = copy / ".venv"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    paths = dict.fromkeys([str(copy / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    (packages / "installed.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    script = environment / "bin" / "mabrfl"
    code = "import sys\nfrom mabrfl.cli.main import main\nsys.exit(main())\n"
    script.write_text(f"#!{environment}/bin/python\n{code}", encoding="utf-8")
    script.chmod(0o755)
    for mark in (".made", ".installed"):
        (environment / mark).touch()


def type_the_readme(copy: Path, home: Path, **settings: str) -> str:
    """Type the commands of the README into a shell with an empty environment; return what it prints."""
    lines = ["set -e", "trap 'echo \"this failed: $BASH_COMMAND\"' ERR"]
    for block in read(README):
        if block.file_name is not None:
            (copy / block.file_name).write_text(block.text, encoding="utf-8")
        if block.note == "run":
            lines += lines_of(block)
    lines += ["command -v mabrfl python", "python -c 'import mabrfl; print(mabrfl.__file__)'"]
    home.mkdir()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), **settings}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", "\n".join(lines)],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    # Nothing but what the README activates was in use.
    bin_folder = copy / ".venv" / "bin"
    ours = [str(bin_folder / "mabrfl"), str(bin_folder / "python"), str(copy / "src" / "mabrfl" / "__init__.py")]
    assert done.stdout.splitlines()[-3:] == ours
    return done.stdout


@pytest.mark.skipif(not (shutil.which("make") and shutil.which("bash")), reason="there is no make or no bash here")
def test_the_readme_works_as_a_newcomer_types_it(tmp_path):
    copy = fresh_copy(tmp_path / "mabrfl")
    as_if_installed(copy)
    printed = type_the_readme(copy, tmp_path / "home", ARGS="--rounds 2")
    assert "\nTo have the command mabrfl in this shell: . .venv/bin/activate\n" in printed
    for name in ("first", "second", "third", "mine"):
        assert (copy / "runs" / name / "summary.json").exists()


@pytest.mark.slow
def test_the_readme_works_with_a_true_installation(tmp_path):
    copy = fresh_copy(tmp_path / "mabrfl")
    python = str(getattr(sys, "_base_executable", sys.executable))
    for_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    type_the_readme(copy, tmp_path / "home", PYTHON=python, **for_pip)
    assert (copy / ".venv" / ".installed").exists()


LEFT_OUT = [block for path in DOCUMENTS for block in read(path) if block.left_out]


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: block.place)
def test_a_block_that_is_not_run_says_why(block):
    reason = block.note.removeprefix("not run").lstrip(": ")
    assert reason, f"{block.place}: write <!-- not run: REASON -->"
    pytest.skip(f"{block.place}: {reason}")


SAMPLE = """\
Text.

```python
x = 1
```

<!-- not run: needs a GPU -->
```python
x = 2
```

<!-- file: own.toml -->

```toml
a = 1
```

<!-- run -->
But this text comes between.
```console
$ mabrfl list  # what there is
defenses: krum
$ MABRFL_DATA=data mabrfl run \\
    --rounds 3 && make demo
```

```json
{}
```

- In a list:

  ```bash
  python -m mabrfl data list | head
  ```
"""


def test_blocks_are_found_with_their_line_and_the_comment_before_them():
    found = [(block.line, block.language, block.note) for block in blocks_of(Path("a.md"), SAMPLE)]
    assert found == [
        (4, "python", ""),
        (9, "python", "not run: needs a GPU"),
        (15, "toml", "file: own.toml"),
        (21, "console", ""),
        (34, "bash", ""),
    ]


def test_a_block_that_is_never_closed_is_an_error():
    with pytest.raises(AssertionError, match=r"a\.md:1: this block is never closed"):
        list(blocks_of(Path("a.md"), "```python\nx = 1\n"))


def test_commands_are_found_without_prompts_output_comments_and_settings():
    *_, console, bash = blocks_of(Path("a.md"), SAMPLE)
    assert list(commands_of(console)) == [
        ["mabrfl", "list"],
        ["mabrfl", "run", "--rounds", "3"],
        ["make", "demo"],
    ]
    assert [arguments_of_mabrfl(words) for words in commands_of(bash)] == [["data", "list"], None]


def _small_app() -> typer.Typer:
    app, data = typer.Typer(), typer.Typer()
    app.add_typer(data, name="data")

    @app.command()
    def run(config: str = typer.Argument(""), rounds: int = 1, live: bool = True) -> None:
        pass

    @data.command("list")
    def list_() -> None:
        pass

    @data.command()
    def fetch(name: str) -> None:
        pass

    return app


@pytest.mark.parametrize(
    "line", ["run", "run a.toml --rounds 3 --no-live", "run --rounds=3", "data list", "data fetch x"]
)
def test_a_command_that_exists_is_understood(line):
    assert usage_problem(get_command(_small_app()), line.split()) is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("sweep", "No such command 'sweep'"),
        ("data lost", "No such command 'lost'"),
        ("run --epochs 3", "No such option.*--epochs"),
        ("run --rounds", "requires an argument"),
        ("run a.toml b.toml", "unexpected argument: b.toml"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line, problem):
    assert re.search(problem, usage_problem(get_command(_small_app()), line.split()) or "")


def test_python_blocks_share_names_and_fail_at_the_line_of_the_document(tmp_path):
    text = "```python\nx = 1\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n"
    names = types.ModuleType("sample")
    first, second = blocks_of(tmp_path / "a.md", text)
    check(first, names, tmp_path)
    with pytest.raises(AssertionError) as failure:
        check(second, names, tmp_path)
    assert failure.traceback[-1].lineno + 1 == 7


def test_a_block_with_a_file_name_is_written_and_run(tmp_path):
    (block,) = blocks_of(tmp_path / "a.md", "<!-- file: own.py -->\n```python\nx = 1\n```\n")
    names = types.ModuleType("sample")
    check(block, names, tmp_path)
    assert (tmp_path / "own.py").read_text() == "x = 1\n"
    assert names.x == 1
