#!/usr/bin/env bash
# Find or install the Chromium that the browser tests drive: Debian's own, so that nothing else is downloaded.
set -euo pipefail

find_chromium() {
    [[ -n ${ETL_CHROMIUM:-} ]] || command -v chromium || command -v chromium-browser || command -v google-chrome
}

if find_chromium >/dev/null; then exit 0; fi
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing chromium, for the browser tests"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || true
    if apt-get -qq --yes install --no-install-recommends chromium fonts-dejavu-core </dev/null; then exit 0; fi
fi
echo "web: no Chromium here; install the Debian package chromium, or let ETL_CHROMIUM name one" >&2
exit 1
