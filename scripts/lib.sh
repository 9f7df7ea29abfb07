# Shared by the scripts: where things go and how tools are brought.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
VENV="$TARGET/venv"

say() { printf '\n== %s\n' "$*" >&2; }

# Installs Debian packages: needs root, or sudo without a password.
apt_install() { # package…
    local as=()
    [ "$(id -u)" = 0 ] || as=(sudo -n)
    say "installing $*"
    "${as[@]}" apt-get update -qq && "${as[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_command() { # command package
    command -v "$1" >/dev/null 2>&1 || apt_install "$2"
}

# A virtual environment under the target folder, made once for each version of the requirements.
python_env() {
    local wanted="$ROOT/tests/python/requirements.txt"
    if [ -x "$VENV/bin/python" ] && cmp -s "$wanted" "$VENV/requirements.txt"; then
        return 0
    fi
    say "making a Python environment with the reference packages"
    need_command python3 python3
    rm -rf "$VENV"
    if ! python3 -m venv "$VENV" 2>/dev/null; then
        # Debian ships venv apart from Python.
        apt_install python3-venv
        python3 -m venv "$VENV"
    fi
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$VENV/requirements.txt"
}

# The Python package, built on what the release build left behind and installed beside the reference packages.
python_package() {
    local wanted="$ROOT/tests/python/package/requirements.txt"
    if ! cmp -s "$wanted" "$VENV/requirements-package.txt"; then
        say "adding what the tests of the Python package need"
        "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
        cp "$wanted" "$VENV/requirements-package.txt"
    fi
    say "building the Python package"
    rm -rf "$TARGET/wheels"
    (cd "$ROOT" && CARGO_TARGET_DIR="$TARGET" "$VENV/bin/maturin" build --quiet --release --locked --out "$TARGET/wheels")
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$TARGET"/wheels/*.whl
}
