#!/usr/bin/env bash
# Make a virtual environment and install the locks into it: tools/setup.sh DIR BUILD_LOCK LOCK
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1 build_lock=$2 lock=$3

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Debian ships ensurepip apart from Python, so a Python that starts is not yet one that can make an environment.
can_make_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

make_venv() {
    local candidate without_venv=""
    for candidate in python3.13 python3.12 python3.11 python3; do
        new_enough "$candidate" || continue
        if can_make_venv "$candidate"; then
            echo "Making $venv with $("$candidate" --version)"
            "$candidate" -m venv --clear "$venv"
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [[ -n $without_venv ]] && command -v virtualenv >/dev/null; then
        echo "Making $venv with virtualenv and $("$without_venv" --version)"
        virtualenv --quiet --clear --python "$without_venv" "$venv"
    elif [[ -n $without_venv ]]; then
        local version
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "setup: $without_venv has no venv module; install the Debian package python$version-venv and try again" >&2
        exit 1
    else
        echo "setup: no Python 3.11 or newer found; install the Debian packages python3 and python3-venv and try again" >&2
        exit 1
    fi
}

# An environment made elsewhere, or by a Python that is gone, does not start: make it again.
"$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || make_venv

# A home that cannot be written to, or none at all, is no place for a cache and no reason to warn.
[[ -w ${HOME:-/nonexistent} ]] || export PIP_NO_CACHE_DIR=1

pip=("$venv/bin/python" -m pip --quiet --no-input)
echo "Installing $lock (a few minutes the first time)"
"${pip[@]}" install --require-hashes -r "$build_lock"
# Source packages are built with the locked tools above; an isolated build would fetch its own, unpinned.
"${pip[@]}" install --require-hashes --no-build-isolation --use-pep517 -r "$lock"
"${pip[@]}" install --no-deps --no-build-isolation --editable .
