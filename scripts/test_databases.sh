#!/usr/bin/env bash
# Prints `export DUETIME_TEST_<STORE>_URL=...` for each database server that scripts/server.sh can start, but for further
# versions (their names end in a digit) and for dynoxide where it was not built before, or for those that are named, for
#   eval "$(scripts/test_databases.sh [NAME ...])"
# They stop with the shell that evaluates this. A server that cannot be had is left out with a word on standard error:
# its tests are then skipped. A variable that is set already is left alone.
set -uo pipefail
scripts=$(dirname "$(realpath "$0")")
server=$scripts/server.sh
if [[ $# -eq 0 ]]; then
  set -- $(cd "$scripts/servers" && echo *[!0-9].sh | sed 's/\.sh//g')
  [[ -x $scripts/../.servers/dynoxide/bin/dynoxide ]] || set -- ${@/dynoxide/}
fi

stop=""
for name; do
  variable=DUETIME_TEST_${name^^}_URL
  [[ -n "${!variable:-}" ]] && continue
  if url=$("$server" start "$name" | tail -1) && [[ -n "$url" ]]; then
    echo "export $variable=$url"
    stop+="$server stop $name; "
  else
    echo "test databases: no $name: its tests are skipped" >&2
  fi
done
[[ -n "$stop" ]] && echo "trap '$stop' EXIT"
exit 0
