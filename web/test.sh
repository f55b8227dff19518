#!/usr/bin/env bash
# `make test-web`: finds or installs what the checks of the client and of the page need, and runs them.
# Where something is missing it says so and exits 0, or 1 where CI is set: what did not run has not passed.
set -euo pipefail
cd "$(dirname "$0")"

missing() {
  echo "test-web did NOT run: $1."
  if [ -n "${CI:-}" ]; then exit 1; fi
  exit 0
}

twice() { "$@" || { sleep 5; "$@"; }; }

node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || missing "it needs Node 20 or newer"
command -v npm >/dev/null || missing "it needs npm"
if ! cmp -s package-lock.json node_modules/.installed; then
  twice npm ci --no-audit --no-fund --loglevel=error >/dev/null || missing "npm could not install what web/package.json lists"
  cp package-lock.json node_modules/.installed
fi

find_chromium() { command -v "${CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome; }
if ! find_chromium >/dev/null; then
  { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || missing "it needs Chromium; install it, or set CHROMIUM to its path"
  echo "installing Chromium with apt-get"
  export DEBIAN_FRONTEND=noninteractive
  { twice apt-get -qq update && twice apt-get -qq install -y --no-install-recommends chromium; } >/dev/null || missing "apt-get could not install chromium"
fi
CHROMIUM=$(find_chromium) || missing "apt-get installed no chromium"
export CHROMIUM

node_modules/.bin/tsc --noEmit
node build.mjs --check
exec node test/run.mjs "$@"
