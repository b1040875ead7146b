#!/usr/bin/env bash
# Becomes one node of a Cassandra cluster, in the foreground:
#   scripts/servers/cassandra/node.sh FOLDER PORT STORAGE_PORT [ADDRESS [TOKEN]]
# FOLDER keeps its data over a restart. Nodes of one cluster share the ports and differ in address and token; the first
# is 127.0.0.1. Its process id is in FOLDER/pid. The setting storage_compatibility_mode is what the variable of that name
# in capitals says, or Cassandra's default.
set -euo pipefail
folder=$1 port=$2 storage_port=$3 address=${4:-127.0.0.1} token=${5:-0}
here=$(cd "$(dirname "$0")" && pwd)
lib=$(cd "$here/../../.." && pwd)/.servers/cassandra/lib
mkdir -p "$folder/tmp"
sed -e "s|@folder@|$folder|g; s|@port@|$port|; s|@storage_port@|$storage_port|; s|@address@|$address|; s|@token@|$token|" \
  -e "s|@seed@|127.0.0.1|; s|@storage_compatibility_mode@|${STORAGE_COMPATIBILITY_MODE:-CASSANDRA_4}|" \
  "$here/cassandra.yaml" >"$folder/cassandra.yaml"
cd "$folder"
echo $$ >pid
exec java "@$here/jvm.options" -cp "$lib/*" -javaagent:"$(echo "$lib"/jamm-*.jar)" -Djava.io.tmpdir="$folder/tmp" \
  -Dcassandra.config="file://$folder/cassandra.yaml" -Dcassandra.storagedir="$folder" \
  -Dlogback.configurationFile="$here/logback.xml" org.apache.cassandra.service.CassandraDaemon
