"""The package as a package: types, size, speed of import, documentation that runs."""

import doctest
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tesseral

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(tesseral.__file__).parent

HERE = Path(__file__).parent


def test_types_are_complete(tmp_path):
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--config-file", str(ROOT / "pyproject.toml")]
    whole = subprocess.run([*mypy, "-p", "tesseral"], capture_output=True, text=True, cwd=tmp_path)
    assert whole.returncode == 0, whole.stdout
    user = subprocess.run([*mypy, "--strict", str(HERE / "typed_user.py")], capture_output=True, text=True, cwd=tmp_path)
    assert user.returncode == 0, user.stdout
    wrong = subprocess.run([*mypy, str(HERE / "typed_wrong.py")], capture_output=True, text=True, cwd=tmp_path)
    assert wrong.returncode == 1 and "Found 5 errors" in wrong.stdout, wrong.stdout
    assert (FOLDER / "py.typed").exists()


def test_pyright_accepts_programs_of_users(tmp_path):
    """The package `basedpyright` is pyright with its JavaScript runtime in the wheel."""
    for name in ("typed_user.py", "typed_wrong.py"):
        shutil.copy(HERE / name, tmp_path / name)
    settings = {"typeCheckingMode": "strict", "venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name, "extraPaths": [str(FOLDER.parent)]}
    found = {}
    for name in ("typed_user.py", "typed_wrong.py"):
        (tmp_path / "pyrightconfig.json").write_text(json.dumps({**settings, "include": [name]}))
        done = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
        report = json.loads(done.stdout)
        assert report["summary"]["filesAnalyzed"] == 1
        found[name] = {error["range"]["start"]["line"] for error in report["generalDiagnostics"] if error["severity"] == "error"}
    assert found == {"typed_user.py": set(), "typed_wrong.py": {4, 5, 7, 8, 9}}


def public_functions():
    for name in tesseral.__all__:
        thing = getattr(tesseral, name)
        if inspect.isfunction(thing):
            yield name, thing
        for member, value in inspect.getmembers(thing) if inspect.isclass(thing) and thing.__module__.startswith("tesseral") else ():
            function = value.fget if isinstance(value, property) else value
            if inspect.isfunction(function) and function.__module__.startswith("tesseral") and (not member.startswith("_") or member in ("__getitem__", "__setitem__")):
                yield f"{name}.{member}", function


# Arguments that are passed on to pyarrow, which has no types, and options of xarray.
UNTYPED = {"Dataset", "to_xarray", "to_datatree", "dataset", "scan", "append"}


def test_public_types_are_precise():
    """No argument and no result of a public function is just anything."""
    vague = []
    for name, function in public_functions():
        if UNTYPED & set(name.split(".")):
            continue
        vague += [f"{name}: {key}" for key, kind in function.__annotations__.items() if kind == "Any"]
    assert not vague
    assert len(list(public_functions())) > 60


def test_stubs_name_what_is_there():
    from tesseral import _native

    stub = (FOLDER / "_native.pyi").read_text()
    top = set(re.findall(r"^(?:def|class) (\w+)", stub, re.M))
    assert top == {name for name in dir(_native) if not name.startswith("_")}
    for name in ("Source", "View", "Writer"):
        body = re.search(rf"^class {name}:\n((?:    .*\n|\n)+)", stub + "\n", re.M).group(1)
        said = set(re.findall(r"def (\w+)", body)) - {"__init__", "__len__"}
        assert said == {m for m in dir(getattr(_native, name)) if not m.startswith("_")}


def test_everything_public_is_documented():
    for module in (tesseral, tesseral.tensogram, tesseral.xarray, tesseral.dask, tesseral.zarr):
        for name in module.__all__:
            thing = getattr(module, name)
            assert not callable(thing) or inspect.getdoc(thing), name
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_import_brings_nothing_heavy():
    """Other libraries make imports slow: they are imported on first use."""
    script = "import sys, numpy\nbefore = set(sys.modules)\nimport tesseral\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    brought = {name.split(".")[0] for name in done.stdout.split()}
    assert "tesseral" in brought
    assert not brought & {"dask", "distributed", "pandas", "polars", "pyarrow", "xarray", "zarr"}, brought
    assert not brought & {"asyncio", "dataclasses", "html", "json", "shutil", "tempfile", "threading"}, brought
    own = {name for name in done.stdout.split() if name.startswith("tesseral.")}
    assert len(own) < 10, own


def test_what_is_loaded_on_first_use_is_there():
    assert set(tesseral.__all__) <= set(dir(tesseral))
    for name in tesseral.__all__:
        assert getattr(tesseral, name) is not None, name
    with pytest.raises(AttributeError, match="nope"):
        tesseral.nope


def test_wheel_is_small():
    libraries = list(FOLDER.glob("_native*.so"))
    assert len(libraries) == 1
    if "debug" not in str(libraries[0].resolve()):
        assert libraries[0].stat().st_size < 32 << 20


def test_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "guides" / "python.md").read_text(), re.M | re.S)
    assert len(blocks) > 8
    names = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"python.md block {number}", "exec"), names)


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py") if ">>>" in path.read_text()))
def test_examples_of_docstrings_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    module = tesseral if name == "__init__" else importlib.import_module(f"tesseral.{name}")
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted and not found.failed


@pytest.mark.parametrize("name", ["explore", "daily_means", "cluster_mean"])
def test_examples_run(tmp_path, name):
    values = np.arange(48 * 6, dtype="f4").reshape(48, 2, 3)
    tesseral.write(tmp_path / "in.tet", {"t": values}, dims=("time", "y", "x"), chunks=(12, 2, 3), attrs={"t": {"units": "K"}})
    extra = [tmp_path / "out.tet"] if name == "daily_means" else []
    script = [sys.executable, str(ROOT / "examples" / f"{name}.py"), str(tmp_path / "in.tet"), *map(str, extra)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if name == "daily_means":
        daily = tesseral.open(tmp_path / "out.tet")["t"]
        np.testing.assert_array_equal(daily[...], values.reshape(2, 24, 2, 3).mean(1))
    else:
        assert f"mean {values.mean():.6g}" in done.stdout


def test_how_things_look(arrays):
    for array in arrays.values():
        assert "tesseral.Array" in repr(array) and "float32" in repr(array)
        html = array._repr_html_()
        assert "<svg" in html and html.count("<line") >= sum(-(-n // c) - 1 for n, c in zip(array.shape[1:], array.chunks[1:]))
    container = arrays["raw.tet"]._container
    assert "1 array>" in repr(container) and "<table>" in container._repr_html_()
    assert "&lt;" in tesseral._show._table([("<b>", "x")])


def test_markup_of_files_is_text(tmp_path):
    markup = "<script>alert(1)</script>"
    tesseral.write(tmp_path / "a.tet", {markup: np.zeros((2, 3)), "b": np.zeros(2)}, dims={markup: (markup, "x"), "b": ("z",)}, attrs={"b": {markup: markup}})
    container = tesseral.open(tmp_path / "a.tet")
    for html in (container._repr_html_(), container[markup]._repr_html_(), container["b"]._repr_html_()):
        assert "&lt;script&gt;" in html and "<script" not in html


def test_formats_and_versions():
    from tesseral import _native

    assert {"tet", "tensogram", "tiledb"} <= {format[0] for format in _native.formats()}
    assert re.match(r"\d+\.\d+\.\d+", tesseral.__version__)
