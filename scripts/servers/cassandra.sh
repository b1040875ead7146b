# shellcheck shell=bash
# Apache Cassandra 5.0, one node, from Maven's central repository; it needs JDK 17 or 11, and Maven for the first start.

install_cassandra() {
  local files=$root/.servers/cassandra
  command -v java >/dev/null || { say "no java on this machine: Cassandra 5.0 needs JDK 17"; return 1; }
  [[ -e "$files/lib" ]] && return
  command -v mvn >/dev/null || { say "no mvn on this machine: install Maven"; return 1; }
  mkdir -p "$files"
  rm -rf "$files/coming"
  mvn --quiet --batch-mode --strict-checksums --file "$root/scripts/servers/cassandra/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$files/coming" -DincludeScope=runtime >&2
  mv "$files/coming" "$files/lib"
}

# Whether a node answers CQL on the port: STARTUP of the native protocol, version 4, is answered by READY.
answers_cql() {
  python3 - "$1" 2>/dev/null <<'PY'
import socket, sys

body = b"\0\1" + b"\0\x0bCQL_VERSION" + b"\0\x053.0.0"
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5) as connection:
    connection.sendall(b"\4\0\0\0\1" + len(body).to_bytes(4, "big") + body)
    sys.exit(connection.recv(9)[4:5] != b"\2")
PY
}

start() {
  local port
  install_cassandra
  port=$(its_port)
  as_user "$root/scripts/servers/cassandra/node.sh" "$PWD" "$port" "$(free_port)" >log 2>&1 &
  until answers_cql "$port"; do
    if ! kill -0 $! 2>/dev/null || (( SECONDS > 300 )); then
      cat log >&2
      return 1
    fi
    sleep 0.2
  done
  echo "cassandra://127.0.0.1:$port/?replication=1" >url
}
