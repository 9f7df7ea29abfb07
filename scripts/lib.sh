# Shared by the scripts: paths, and installation of tools.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
VENV="$TARGET/venv"

say() { printf '\n== %s\n' "$*" >&2; }

TOOLS="$TARGET/tools/debian"

# Run a command as root, or with passwordless sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Install Debian packages; without root, unpack them below the target folder, where dependencies must be named explicitly.
apt_install() { # package…
    if as_root true 2>/dev/null; then
        say "installing $*"
        as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
        return
    fi
    say "unpacking $* below $TOOLS"
    mkdir -p "$TOOLS/lists/partial" "$TOOLS/cache/archives/partial"
    local apt=(apt-get -qq -o "Dir::State::lists=$TOOLS/lists" -o "Dir::Cache=$TOOLS/cache" -o Debug::NoLocking=true)
    "${apt[@]}" update
    (cd "$TOOLS" && "${apt[@]}" download "$@" && for deb in ./*.deb; do dpkg -x "$deb" . && rm "$deb"; done)
    use_unpacked
}

# Put unpacked packages on the search paths.
use_unpacked() {
    [ -d "$TOOLS" ] || return 0
    export PATH="$PATH:$TOOLS/usr/bin"
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$TOOLS/usr/lib/$(uname -m)-linux-gnu"
}
use_unpacked

need_command() { # command package…
    command -v "$1" >/dev/null 2>&1 || apt_install "${@:2}"
}

# Create a virtual environment below the target folder, once per version of the requirements.
python_env() {
    local wanted="$ROOT/tests/python/requirements.txt"
    if [ -x "$VENV/bin/python" ] && cmp -s "$wanted" "$VENV/requirements.txt"; then
        return 0
    fi
    say "creating a Python environment with the reference packages"
    need_command python3 python3
    rm -rf "$VENV"
    if ! python3 -m venv "$VENV" >/dev/null 2>&1; then
        # Debian packages pip and venv separately from Python.
        apt_install python3-pip-whl python3-setuptools-whl
        python3 -m venv --without-pip "$VENV"
        PYTHONPATH="$(echo "$TOOLS"/usr/share/python-wheels/pip-*.whl /usr/share/python-wheels/pip-*.whl | tr ' ' ':')" \
            "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check pip
    fi
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$VENV/requirements.txt"
}

# Build the Python package in the release target folder and install it beside the reference packages.
python_package() {
    local wanted="$ROOT/tests/python/package/requirements.txt"
    if ! cmp -s "$wanted" "$VENV/requirements-package.txt"; then
        say "installing the requirements of the Python package tests"
        "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
        cp "$wanted" "$VENV/requirements-package.txt"
    fi
    say "building the Python package"
    rm -rf "$TARGET/wheels"
    (cd "$ROOT" && CARGO_TARGET_DIR="$TARGET" "$VENV/bin/maturin" build --quiet --release --locked --out "$TARGET/wheels")
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$TARGET"/wheels/*.whl
}

# Install the browser tests below the target folder.
browser_env() {
    need_command node nodejs
    need_command npm npm
    need_command chromium chromium
    mkdir -p "$TARGET/browser"
    cp "$ROOT"/tests/browser/package.json "$ROOT"/tests/browser/page.mjs "$TARGET/browser/"
    if ! cmp -s "$ROOT/tests/browser/package.json" "$TARGET/browser/installed.json"; then
        (cd "$TARGET/browser" && npm install --no-fund --no-audit --no-package-lock --silent)
        cp "$ROOT/tests/browser/package.json" "$TARGET/browser/installed.json"
    fi
}

# Install the Azure server of the tests, if npm is available; names it in TESSERAL_AZURITE.
azure_server() {
    local folder="$TARGET/tools/azurite" wanted="azurite@3.37.0"
    if ! command -v npm >/dev/null 2>&1; then
        say "no npm: tests with an Azure server are skipped"
        return 0
    fi
    if [ "$(cat "$folder/installed" 2>/dev/null)" != "$wanted" ]; then
        say "installing $wanted"
        mkdir -p "$folder"
        npm install --silent --no-audit --no-fund --prefix "$folder" "$wanted"
        echo "$wanted" >"$folder/installed"
    fi
    export TESSERAL_AZURITE="$folder/node_modules/azurite/dist/src/blob/main.js"
}
