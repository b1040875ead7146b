# shellcheck shell=bash
# SecantusDB, which stands in for MongoDB, from the wheel in .venv-mongodb. SECANTUSDB_OPTIONS adds options of its
# program, such as --auth. It runs as who starts it: root's Python may be where nobody else can read.

start() {
  local port
  make -C "$root" --silent .venv-mongodb/.installed >&2
  port=$(its_port)
  # shellcheck disable=SC2086
  HOME=$PWD "$root/.venv-mongodb/bin/secantusd-py" --port "$port" --storage-path "$PWD/data" --cache-size 256M \
    --enable-test-commands ${SECANTUSDB_OPTIONS:-} >log 2>&1 &
  echo $! >pid
  await_log "$!" 'secantus listening'
  echo "mongodb://127.0.0.1:$port/duetime" >url
}
