#!/usr/bin/env bash
# Check the alert rules and pass their tests, with Debian's promtool: it is installed where it is missing and that may be.
set -euo pipefail
cd "$(dirname "$0")/../deploy/prometheus"

install_promtool() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    echo "Installing prometheus, for its promtool"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || true
    apt-get -qq --yes install --no-install-recommends prometheus </dev/null
}

if ! command -v promtool >/dev/null && ! { install_promtool && command -v promtool >/dev/null; }; then
    echo "alerts: no promtool here; install the Debian package prometheus" >&2
    exit 1
fi
promtool check config --syntax-only prometheus.yaml
promtool check rules alerts.yaml
promtool test rules alerts_test.yaml
