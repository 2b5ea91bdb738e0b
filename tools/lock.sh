#!/usr/bin/env bash
# Resolve the lock files again. They carry versions and hashes, never an address: any mirror serves them.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v uv >/dev/null || { echo "lock: uv is needed to resolve; see CONTRIBUTING.md" >&2; exit 1; }

compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate "$@"
}

compile pyproject.toml -o requirements.lock
compile pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock
compile --group build -c requirements-dev.lock -o requirements-build.lock

if grep -nE '://|--(index|find|extra)' requirements*.lock; then
    echo "lock: an address slipped into a lock file" >&2
    exit 1
fi
