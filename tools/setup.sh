#!/usr/bin/env bash
# Make a virtual environment, install the locks into it, and what Spark needs: tools/setup.sh DIR BUILD_LOCK LOCK
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

# Prints the Java that Spark would use, or on standard error why there is none.
find_java() {
    "$venv/bin/python" - <<'PYTHON'
import os
import sys

from etl.errors import SparkSetupError
from etl.spark.java import find_java

try:
    print(find_java(os.environ))
except SparkSetupError as error:
    sys.exit(str(error))
PYTHON
}

# What the distribution calls it depends on its age; whether it is new enough is looked at afterwards.
install_java() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    export DEBIAN_FRONTEND=noninteractive
    local package
    apt-get -qq update || true
    for package in openjdk-17-jre-headless default-jre-headless; do
        echo "Installing $package, for Spark"
        if apt-get -qq --yes install --no-install-recommends "$package" </dev/null; then return; fi
    done
    return 1
}

if ! why=$(find_java 2>&1) && ! { install_java && why=$(find_java 2>&1); }; then
    echo "setup: Spark is NOT set up; everything else is. $why" >&2
    echo "setup: with Java installed, run: $venv/bin/etl jars fetch" >&2
    exit 0
fi
"$venv/bin/etl" jars fetch
