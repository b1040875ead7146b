#!/usr/bin/env bash
# Prints `export DUETIME_TEST_<STORE>_URL=...` for each database server that scripts/server.sh can start, but for further
# versions (their names end in a digit) and for dynoxide where it was not built before, or for those that are named, for
#   eval "$(scripts/test_databases.sh [--quick] [NAME ...])"
# They stop with the shell that evaluates this. A server that cannot be had is left out with a word on standard error:
# its tests are then skipped. A variable that is set already is left alone.
# --quick, for tests and for nothing that measures: data in memory where there is room, so that nobody waits for a disk,
# and a Java that leaves out the optimising which pays after an hour.
set -uo pipefail
scripts=$(dirname "$(realpath "$0")")
server=$scripts/server.sh
if [[ "${1:-}" == --quick ]]; then
  shift
  echo "export JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1"
  export JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1
  if [[ -w /dev/shm ]] && (( $(df --output=avail --block-size=1M /dev/shm | tail -1) > 4096 )); then
    server="env TMPDIR=/dev/shm $server"
  fi
fi
if [[ $# -eq 0 ]]; then
  set -- $(cd "$scripts/servers" && echo *[!0-9].sh | sed 's/\.sh//g')
  [[ -x $scripts/../.servers/dynoxide/bin/dynoxide ]] || set -- ${@/dynoxide/}
fi

stop=""
for name; do
  variable=DUETIME_TEST_${name^^}_URL
  [[ -n "${!variable:-}" ]] && continue
  # shellcheck disable=SC2086
  if url=$($server start "$name" | tail -1) && [[ -n "$url" ]]; then
    echo "export $variable=$url"
    stop+="$server stop $name; "
  else
    echo "test databases: no $name: its tests are skipped" >&2
  fi
done
[[ -n "$stop" ]] && echo "trap '$stop' EXIT"
exit 0
