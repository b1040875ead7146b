# shellcheck shell=bash
# MariaDB, Debian's.

start() {
  local port socket
  install_package mariadbd mariadb-server
  port=$(free_port)
  socket=$PWD/socket
  as_user mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal \
    --skip-test-db >&2
  as_user mariadbd --no-defaults --datadir="$PWD/data" --bind-address=127.0.0.1 --port="$port" --socket="$socket" \
    --pid-file="$PWD/pid" --skip-name-resolve >log 2>&1 &
  for _ in $(seq 300); do
    mariadb --no-defaults --socket="$socket" -u root -e 'CREATE DATABASE IF NOT EXISTS test' 2>/dev/null && break
    kill -0 $! 2>/dev/null || { cat log >&2; return 1; }
    sleep 0.2
  done
  echo "mariadb://root@127.0.0.1:$port/test" >url
}
