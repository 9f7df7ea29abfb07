# Shared by the scripts: where things go and how tools are brought.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
TARGET="${CARGO_TARGET_DIR:-$ROOT/target}"
VENV="$TARGET/venv"

say() { printf '\n== %s\n' "$*" >&2; }

# Installs Debian packages when a command is missing: needs root, or sudo without a password.
need_command() { # command package
    command -v "$1" >/dev/null 2>&1 && return 0
    local as=()
    [ "$(id -u)" = 0 ] || as=(sudo -n)
    say "installing $2 for $1"
    "${as[@]}" apt-get update -qq && "${as[@]}" apt-get install -y -qq --no-install-recommends "$2" >/dev/null
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
        need_command no-such-command-python3-venv python3-venv
        python3 -m venv "$VENV"
    fi
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$VENV/requirements.txt"
}
