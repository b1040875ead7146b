# shellcheck shell=bash
# MariaDB, Debian's.

base=/usr

install_mariadb() { install_package mariadbd mariadb-server; }

start() {
  local port socket=$PWD/socket
  install_mariadb
  port=$(its_port)
  [[ -d data ]] || as_user mariadb-install-db --no-defaults --basedir="$base" --datadir="$PWD/data" \
    --auth-root-authentication-method=normal --skip-test-db >&2
  as_user mariadbd --no-defaults --basedir="$base" --datadir="$PWD/data" --bind-address=127.0.0.1 --port="$port" \
    --socket="$socket" --pid-file="$PWD/pid" --skip-name-resolve >log 2>&1 &
  await_log "$!" 'ready for connections'
  mariadb --no-defaults --socket="$socket" -u root -e 'CREATE DATABASE IF NOT EXISTS test'
  echo "mariadb://root@127.0.0.1:$port/test" >url
}
