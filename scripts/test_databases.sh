#!/usr/bin/env bash
# Prints `export DUETIME_TEST_<STORE>_URL=...` for each database server that answers on this machine, for
#   eval "$(scripts/test_databases.sh)"
# A server that is installed and does not run is started, as Debian's packages do it. Where there is no PostgreSQL, or
# with POSTGRESQL=18, the one of .venv-postgresql (`make postgresql`) is started; it ends with the shell that evaluates
# this. One that cannot be had is left out with a word on standard error: its tests are then skipped. A variable that is
# set already is left alone.
set -uo pipefail

say() { echo "test databases: $*" >&2; }

# answers <host> <port>
answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

# await <host> <port>: up to 20 seconds
await() {
  for _ in $(seq 100); do
    answers "$1" "$2" && return 0
    sleep 0.2
  done
  return 1
}

# embedded_postgresql: false when it cannot be had
embedded_postgresql() {
  local script started directory url
  script="$(dirname "$(realpath "$0")")/embedded_postgresql.sh"
  started=$("$script" start) || return 1
  read -r directory url <<<"$started"
  echo "export DUETIME_TEST_POSTGRESQL_URL=$url"
  echo "trap '$script stop $directory' EXIT"
}

if [[ -n "${DUETIME_TEST_POSTGRESQL_URL:-}" ]]; then
  :
elif [[ "${POSTGRESQL:-}" == 18 ]]; then
  embedded_postgresql || say "no PostgreSQL 18: its tests are skipped"
else
  if ! answers 127.0.0.1 5432 && command -v pg_ctlcluster >/dev/null; then
    version=$(find /etc/postgresql -mindepth 1 -maxdepth 1 -printf '%f\n' 2>/dev/null | sort -V | tail -1)
    [[ -n "$version" ]] && pg_ctlcluster --skip-systemctl-redirect "$version" main start >&2 && await 127.0.0.1 5432
  fi
  if psql "postgresql://postgres@127.0.0.1/postgres?connect_timeout=5" -wqc 'SELECT 1' >/dev/null 2>&1; then
    echo "export DUETIME_TEST_POSTGRESQL_URL=postgresql://postgres@127.0.0.1/postgres"
  elif answers 127.0.0.1 5432 || ! embedded_postgresql; then
    say "no PostgreSQL lets postgres@127.0.0.1 in without a password: set DUETIME_TEST_POSTGRESQL_URL"
  fi
fi

if [[ -z "${DUETIME_TEST_MARIADB_URL:-}" ]]; then
  if ! answers 127.0.0.1 3306 && [[ -x /usr/sbin/mariadbd ]]; then
    start-stop-daemon --start --oknodo --background --exec /usr/sbin/mariadbd >&2 && await 127.0.0.1 3306
  fi
  if mariadb --protocol=tcp -h 127.0.0.1 -u root --connect-timeout=5 -e 'CREATE DATABASE IF NOT EXISTS test' \
    >/dev/null 2>&1; then
    echo "export DUETIME_TEST_MARIADB_URL=mariadb://root@127.0.0.1/test"
  else
    say "no MariaDB lets root@127.0.0.1 in without a password: set DUETIME_TEST_MARIADB_URL"
  fi
fi
exit 0
