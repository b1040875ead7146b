# shellcheck shell=bash
# Apache Cassandra 5.0, one node, from Maven's central repository; it needs JDK 17 or 11, and Maven for the first start.

start() {
  local port
  install_package java openjdk-17-jre-headless
  if [[ ! -e $downloads/lib ]]; then
    install_package mvn maven
    mvn --quiet --batch-mode --strict-checksums --file "$root/scripts/servers/cassandra/pom.xml" \
      org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      -DoutputDirectory="$PWD/copied/lib" -DincludeScope=runtime >&2
    keep copied
  fi
  port=$(its_port)
  as_user "$root/scripts/servers/cassandra/node.sh" "$PWD" "$port" "$(free_port)" >log 2>&1 &
  until python3 "$root/scripts/servers/cassandra/answers.py" 127.0.0.1 "$port"; do
    if ! kill -0 $! 2>/dev/null || (( SECONDS > 300 )); then
      cat log >&2
      return 1
    fi
    sleep 0.2
  done
  echo "cassandra://127.0.0.1:$port/?replication=1" >url
}
