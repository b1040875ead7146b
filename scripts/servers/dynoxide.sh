# shellcheck shell=bash
# dynoxide, an emulator of DynamoDB, from its crate with Rust's cargo. To build it takes minutes, so
# scripts/test_databases.sh starts it by itself only where it was built before.

start() {
  local program=$downloads/bin/dynoxide port
  if [[ ! -x $program ]]; then
    command -v cargo >/dev/null || { say "no cargo on this machine: install Rust"; return 1; }
    cargo install --quiet --locked --root built --version 3.1.0 dynoxide-rs >&2
    keep built
  fi
  port=$(its_port)
  # shellcheck disable=SC2016
  as_user sh -c 'echo $$ >pid; exec "$@"' sh "$program" --host 127.0.0.1 --port "$port" >log 2>&1 &
  await_log "$!" 'listening on'
  echo "dynamodb://timers?endpoint_url=http://127.0.0.1:$port" >url
}
