#!/bin/sh
# The pages as a site: mkdocs finds no link that leads nowhere, and its search works in a real headless browser.
. "$ROOT/tests/cli/lib.sh"
browser=${CORTADO_BROWSER:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} || {
    not_ok site "no browser: install chromium (Debian: apt-get install chromium), or name one in CORTADO_BROWSER"
    finish
}
runs builds 0 'dist/site/index.html' make -s -C "$ROOT" site
python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$ROOT/dist/site" >served 2>requests </dev/null &
server=$!
i=0
while [ ! -s served ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
timeout -k 5 120 python3 "$ROOT/tests/long/site.py" "$browser" "127.0.0.1:$(sed -n 's/.* port \([0-9]*\) .*/\1/p' served)" || failed=1
kill $server
finish
